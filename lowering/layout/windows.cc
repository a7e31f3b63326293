// Convolutions of few channels on a GPU: in the image as it is, a window's line is taken up element by element. In a
// copy whose pixels have channels of 0 behind their own and whose borders are the padding, it lies together at a
// multiple of 16 bytes, and the convolution is a sum over the lines of a window of products of such runs.

#include <algorithm>
#include <cstring>

#include "ir/program/contraction_view.h"
#include "ir/program/gpu_launch.h"
#include "ir/program/tensor_core.h"
#include "lowering/layout/layout.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

constexpr int64_t kTogether = 8;  // elements of 16 bits in 16 bytes

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

struct Windows {
  ConvolutionView view;
  ElementType type = ElementType::kUndefined;           // of the products' operands
  std::optional<Loop> image, row, column, filter, tap;  // loops of the nest by role; tap: the window's lines
  int64_t channels = 0, pixel = 0;                      // elements of a pixel: in the image, in the copy
  int64_t height = 0, width = 0;                        // of the copy, in pixels
  int64_t run = 0;                                      // elements of a window's line in the copy
};

std::optional<Windows> windows_of(const Program &program, const Kernel &kernel, const LoweringOptions &options) {
  const auto view = convolution_view(program, kernel);
  if (!view || view->integer || view->info->transposed || view->info->group != 1 || view->in_spatial.size() != 2 ||
      !reason_against_gpu(program, kernel).empty())
    return std::nullopt;
  Windows w;
  w.view = *view;
  const Contraction &c = *view->info;
  for (Dim d : {view->in_channels, view->out_channels, view->in_spatial[0], view->in_spatial[1], view->out_spatial[0],
                view->out_spatial[1]})
    if (!d.is_constant()) return std::nullopt;
  w.channels = view->in_channels.value();
  const int64_t rows = view->out_spatial[0].value(), columns = view->out_spatial[1].value();
  if (w.channels < 1 || w.channels % kTogether == 0 || c.dilations[1] != 1 || rows < 1 || columns < 1)
    return std::nullopt;
  const Buffer &filters = program.buffer(view->weight);
  const auto product = tensor_core_schedule(program, kernel, options.f32);
  if (!product || element_bytes(product->type) != 2 || filters.kind != BufferKind::kConstant ||
      !filters.constant.valid() || filters.alias.valid())
    return std::nullopt;
  w.type = product->type == TensorCoreType::kF16 ? ElementType::kFloat16 : ElementType::kBFloat16;
  if (filters.element() != w.type) return std::nullopt;

  w.pixel = w.channels;
  while (w.pixel * c.strides[1] % kTogether != 0) ++w.pixel;
  w.run = round_up(c.kernel[1] * w.pixel, kTogether);
  w.height = (rows - 1) * c.strides[0] + (c.kernel[0] - 1) * c.dilations[0] + 1;
  // Each line begins where a window could.
  w.width = round_up((columns - 1) * c.strides[1] + (w.run + w.pixel - 1) / w.pixel, c.strides[1]);
  const double images = view->batch.is_constant() ? static_cast<double>(view->batch.value()) : 1;
  const double products = images * static_cast<double>(rows * columns) * static_cast<double>(w.channels) *
                          static_cast<double>(c.kernel[0] * c.kernel[1] * view->out_channels.value());
  if (products < static_cast<double>(options.least_window_products)) return std::nullopt;

  // The loops by role: those of extent 1 are not there.
  const LoopNest &nest = *kernel.nest();
  const auto take = [&](const std::vector<const DimSymbol *> &role, size_t &at, bool unit, std::optional<Loop> &out) {
    if (unit) return true;
    if (at >= role.size()) return false;
    const Loop *loop = find_loop(nest.loops, role[at]);
    if (!loop) loop = find_loop(nest.stages[c.stage].loops, role[at]);
    ++at;
    if (loop) out = *loop;
    return loop != nullptr;
  };
  size_t batch = 0, pixel = 0, column = 0, inner = 0;
  std::optional<Loop> channel, across;
  const bool found = take(c.batch, batch, view->batch.is(1), w.image) && take(c.m, pixel, rows == 1, w.row) &&
                     take(c.m, pixel, columns == 1, w.column) &&
                     take(c.n, column, view->out_channels.is(1), w.filter) &&
                     take(c.k, inner, w.channels == 1, channel) && take(c.k, inner, c.kernel[0] == 1, w.tap) &&
                     take(c.k, inner, c.kernel[1] == 1, across);
  if (!found || batch != c.batch.size() || pixel != c.m.size() || column != c.n.size() || inner != c.k.size() ||
      nest.stages[c.stage].outputs.size() != 1)
    return std::nullopt;
  return w;
}

class Writer {
 public:
  Writer(Program &program, KernelId kernel, const Windows &w)
      : p_(program), kernel_(kernel), w_(w), c_(*w.view.info), line_(w.width * w.pixel) {}

  // The kernel that writes the copy, to run before this one, which reads it.
  KernelId write() {
    const std::string name = p_.kernel(kernel_).name;
    Buffer copy;
    copy.name = p_.buffer(w_.view.input).name + "_windows_of_" + name;
    copy.type = Type::tensor(w_.type, Shape{w_.view.batch, w_.height, line_});
    copy_ = p_.add_buffer(std::move(copy));
    Buffer filters;
    filters.name = p_.buffer(w_.view.weight).name + "_windows_of_" + name;
    filters.kind = BufferKind::kConstant;
    filters.constant = filters_in_runs();
    filters.type = Type::tensor(w_.type, filters.constant.shape());
    filters_ = p_.add_buffer(std::move(filters));
    sum_over_runs();
    return copy_kernel(name);
  }

 private:
  ScalarPool &pool() { return p_.scalars; }
  Dim counter(const std::optional<Loop> &loop) { return loop ? p_.dims->symbol_value(loop->index) : Dim(0); }

  Constant filters_in_runs() const {
    const Buffer &given = p_.buffer(w_.view.weight);
    const std::vector<Dim> strides = storage_strides(given);
    const Constant plain = given.constant.plain();
    const auto &dims = plain.dims();
    const size_t filters = static_cast<size_t>(dims[0]), lines = static_cast<size_t>(dims[2]),
                 run = static_cast<size_t>(w_.run);
    std::vector<uint8_t> bytes(filters * lines * run * 2);
    const auto at = [&](size_t d, int64_t i) { return i * strides[d].value(); };
    for (int64_t o = 0; o < dims[0]; ++o)
      for (int64_t r = 0; r < dims[2]; ++r)
        for (int64_t s = 0; s < dims[3]; ++s)
          for (int64_t i = 0; i < dims[1]; ++i) {
            const int64_t to = (o * dims[2] + r) * w_.run + s * w_.pixel + i,
                          from = at(0, o) + at(1, i) + at(2, r) + at(3, s);
            std::memcpy(bytes.data() + 2 * to, plain.data() + 2 * from, 2);
          }
    return Constant::owned(w_.type, {dims[0], dims[2], w_.run}, std::move(bytes));
  }

  void sum_over_runs() {
    LoopNest nest = *p_.kernel(kernel_).nest();
    Stage &stage = nest.stages[c_.stage];
    stage.loops.clear();
    if (w_.tap) stage.loops.push_back(*w_.tap);
    const Dim j = p_.dims->new_loop("run", w_.run);
    stage.loops.push_back({single_symbol(j), w_.run});
    const auto load = [&](BufferId b, std::vector<Dim> index) {
      return pool().cast(pool().load(b, w_.type, std::move(index)), ElementType::kFloat32);
    };
    Contraction c;
    c.stage = c_.stage;
    c.lhs =
        load(copy_, {counter(w_.image), counter(w_.row) * Dim(c_.strides[0]) + counter(w_.tap) * Dim(c_.dilations[0]),
                     counter(w_.column) * Dim(c_.strides[1] * w_.pixel) + j});
    c.rhs = load(filters_, {counter(w_.filter), counter(w_.tap), j});
    c.batch = c_.batch;
    c.m = c_.m;
    c.n = c_.n;
    if (w_.tap) c.k.push_back(w_.tap->index);
    c.k.push_back(single_symbol(j));
    stage.outputs[0].value = pool().binary(ScalarOp::kMul, c.lhs, c.rhs);
    nest.contraction = std::move(c);
    p_.kernel(kernel_).body = std::move(nest);
  }

  KernelId copy_kernel(const std::string &name) {
    LoopNest nest;
    const auto loop = [&](const char *what, Dim extent) {
      if (extent.is(1)) return Dim(0);
      const Dim d = p_.dims->new_loop(what, extent);
      nest.loops.push_back({single_symbol(d), extent});
      return d;
    };
    const Dim n = loop("n", w_.view.batch), h = loop("h", w_.height), v = loop("w", w_.width),
              channel = loop("c", w_.pixel);
    const Buffer &image = p_.buffer(w_.view.input);
    const Dim at[3] = {channel, h - Dim(c_.pads_begin[0]), v - Dim(c_.pads_begin[1])};
    const Dim extents[3] = {w_.channels, w_.view.in_spatial[0], w_.view.in_spatial[1]};
    std::vector<Dim> index{n};
    ScalarId inside;
    const auto also = [&](ScalarId condition) {
      inside = inside.valid() ? pool().binary(ScalarOp::kAnd, inside, condition) : condition;
    };
    for (size_t d = 0; d < 3; ++d) {
      index.push_back(max(min(at[d], extents[d] - 1), 0));
      also(pool().binary(ScalarOp::kLe, pool().constant_int(ElementType::kInt64, 0), pool().index(at[d])));
      also(pool().binary(ScalarOp::kLt, pool().index(at[d]),
                         pool().constant_int(ElementType::kInt64, extents[d].value())));
    }
    ScalarId value = pool().load(w_.view.input, image.element(), std::move(index));
    if (image.element() != w_.type) value = pool().cast(value, w_.type);
    StageOutput out;
    out.buffer = copy_;
    out.index = {n, h, v * Dim(w_.pixel) + channel};
    out.value = pool().select(inside, value, pool().constant(w_.type, 0));
    Stage stage;
    stage.outputs.push_back(std::move(out));
    nest.stages.push_back(std::move(stage));
    Kernel kernel;
    kernel.name = name + "_windows";
    kernel.note = "to lines of " + std::to_string(w_.pixel) + " channels";
    kernel.origin = p_.kernel(kernel_).origin;
    kernel.body = std::move(nest);
    return p_.add_kernel(std::move(kernel));
  }

  Program &p_;
  const KernelId kernel_;
  const Windows w_;
  const Contraction c_;
  const int64_t line_;  // elements of a line of the copy
  BufferId copy_, filters_;
};

}  // namespace

void lay_out_windows(Program &program, const LoweringOptions &options, Steps &steps) {
  std::vector<KernelId> order;
  for (KernelId id : program.order) {
    const auto windows = windows_of(program, program.kernel(id), options);
    if (windows && steps.allowed("layout.windows")) {
      steps.record("layout.windows", program.kernel(id).name, program.kernel(id).origin);
      order.push_back(Writer(program, id, *windows).write());
    }
    order.push_back(id);
  }
  program.order = std::move(order);
}

}  // namespace optc
