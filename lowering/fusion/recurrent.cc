// Recurrent layers on a GPU: X * W^T of all steps is one product, as any other; the steps behind it need only its sums
// (Appleyard, Kocisky, Blunsom 2016: Optimizing Performance of Recurrent Neural Networks on GPUs, section 4).
#include <cstring>

#include "ir/program/recurrent.h"
#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

class Splitter {
 public:
  Splitter(Program &program, KernelId kernel)
      : p_(program), kernel_(kernel), call_(*program.kernel(kernel).library()), cell_(*recurrent_cell(call_, 0)) {
    const auto &r = p_.buffer(call_.inputs[2]).constant.dims();
    directions_ = r[0];
    gates_ = cell_.gates;
    hidden_ = r[2];
  }

  // The kernel of the product, to run before this one, which becomes the steps.
  KernelId split() {
    const std::string name = p_.kernel(kernel_).name;
    const Shape x = p_.buffer(call_.inputs[0]).shape();
    Buffer sums;
    sums.name = name + "_sums";
    sums.type = Type::tensor(ElementType::kFloat32, Shape{x[0], x[1], columns()});
    sums_ = p_.add_buffer(std::move(sums));
    const KernelId product = inputs(name);
    LibraryCall steps;
    steps.function = "rnn_steps";
    steps.inputs = {sums_, call_.inputs[2], recurrent_bias(name), operand(5), operand(6), operand(7)};
    steps.outputs = call_.outputs;
    steps.attributes = call_.attributes;
    p_.kernel(kernel_).body = std::move(steps);
    return product;
  }

 private:
  int64_t columns() const { return directions_ * gates_ * hidden_; }
  BufferId operand(size_t i) const { return i < call_.inputs.size() ? call_.inputs[i] : BufferId(); }
  const float *biases(int64_t direction) const {  // [Wb, Rb], or null
    return operand(3).valid() ? p_.buffer(operand(3)).constant.as<float>() + direction * 2 * gates_ * hidden_ : nullptr;
  }
  // A GRU with linear_before_reset multiplies R_h * h + Rb_h: that bias is no part of the sums.
  bool is_apart(int64_t gate) const { return cell_.linear_before_reset && gate == 2; }

  BufferId constant(const std::string &name, std::vector<int64_t> dims, const std::vector<float> &values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    Buffer b;
    b.name = name;
    b.kind = BufferKind::kConstant;
    b.constant = Constant::owned(ElementType::kFloat32, std::move(dims), std::move(bytes));
    b.type = Type::tensor(ElementType::kFloat32, b.constant.shape());
    return p_.add_buffer(std::move(b));
  }

  BufferId input_bias(const std::string &name) {
    if (!operand(3).valid()) return {};
    std::vector<float> values;
    for (int64_t d = 0; d < directions_; ++d)
      for (int64_t i = 0; i < gates_ * hidden_; ++i) {
        const float *b = biases(d);
        values.push_back(is_apart(i / hidden_) ? b[i] : b[i] + b[gates_ * hidden_ + i]);
      }
    return constant(name + "_input_bias", {columns()}, values);
  }
  BufferId recurrent_bias(const std::string &name) {
    if (!operand(3).valid() || !cell_.linear_before_reset) return {};
    std::vector<float> values;
    for (int64_t d = 0; d < directions_; ++d) {
      const float *of_h = biases(d) + (gates_ + 2) * hidden_;
      values.insert(values.end(), of_h, of_h + hidden_);
    }
    return constant(name + "_recurrent_bias", {directions_, hidden_}, values);
  }

  // sums[a, b, j] = sum over k of x[a, b, k] * w[j, k] + bias[j], j over directions, gates and units.
  KernelId inputs(const std::string &name) {
    const Shape shape = p_.buffer(call_.inputs[0]).shape();
    const BufferId weights = flat_weights();
    LoopNest nest;
    const auto loop = [&](std::vector<Loop> &loops, std::vector<const DimSymbol *> &role, const char *what,
                          Dim extent) {
      if (extent.is(1)) return Dim(0);
      const Dim d = p_.dims->new_loop(what, extent);
      loops.push_back({single_symbol(d), extent});
      role.push_back(single_symbol(d));
      return d;
    };
    Contraction c;
    const Dim a = loop(nest.loops, c.m, "o0", shape[0]), b = loop(nest.loops, c.m, "o1", shape[1]),
              j = loop(nest.loops, c.n, "o2", columns());
    Stage sum;
    const Dim k = loop(sum.loops, c.k, "k", shape[2]);
    ScalarPool &pool = p_.scalars;
    c.lhs = pool.load(call_.inputs[0], ElementType::kFloat32, {a, b, k});
    c.rhs = pool.load(weights, ElementType::kFloat32, {j, k});
    const LocalId local(size_t{0});
    nest.locals.push_back({"r0", ElementType::kFloat32, {}});
    StageOutput add;
    add.local = local;
    add.value = pool.binary(ScalarOp::kMul, c.lhs, c.rhs);
    add.combine = Combine::kSum;
    sum.outputs.push_back(std::move(add));
    Stage store;
    StageOutput out;
    out.buffer = sums_;
    out.index = {a, b, j};
    out.value = pool.local(local, ElementType::kFloat32, {});
    if (const BufferId bias = input_bias(name); bias.valid())
      out.value = pool.binary(ScalarOp::kAdd, out.value, pool.load(bias, ElementType::kFloat32, {j}));
    store.outputs.push_back(std::move(out));
    nest.stages = {std::move(sum), std::move(store)};
    if (!c.k.empty()) nest.contraction = std::move(c);
    Kernel kernel;
    kernel.name = name + "_inputs";
    kernel.note = p_.kernel(kernel_).note + ", the inputs' part";
    kernel.origin = p_.kernel(kernel_).origin;
    kernel.rules = p_.kernel(kernel_).rules;
    kernel.body = std::move(nest);
    return p_.add_kernel(std::move(kernel));
  }

  // W [directions, gates * hidden, input] with its first two dims as one: the same bytes.
  BufferId flat_weights() {
    const Buffer &w = p_.buffer(call_.inputs[1]);
    Buffer flat;
    flat.name = w.name + "_rows";
    flat.kind = BufferKind::kConstant;
    flat.constant = w.constant.reshaped({columns(), w.constant.dims()[2]});
    flat.type = Type::tensor(ElementType::kFloat32, flat.constant.shape());
    return p_.add_buffer(std::move(flat));
  }

  Program &p_;
  const KernelId kernel_;
  const LibraryCall call_;
  const RecurrentCell cell_;
  int64_t directions_ = 1, gates_ = 1, hidden_ = 0;
  BufferId sums_;
};

}  // namespace

void split_recurrent(Program &program, Steps &steps) {
  std::vector<KernelId> order;
  for (KernelId id : program.order) {
    const LibraryCall *call = program.kernel(id).library();
    if (call && call->function == "rnn" && reason_against_steps(program, *call).empty() && steps.allowed("split.rnn")) {
      steps.record("split.rnn", program.kernel(id).name, program.kernel(id).origin);
      order.push_back(Splitter(program, id).split());
    }
    order.push_back(id);
  }
  program.order = std::move(order);
}

}  // namespace optc
