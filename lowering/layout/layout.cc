#include "lowering/layout/layout.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"
#include "lowering/fusion/legality.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

std::vector<int> channels_last(size_t rank) {
  std::vector<int> order{0};
  for (size_t i = 2; i < rank; ++i) order.push_back(static_cast<int>(i));
  order.push_back(1);
  return order;
}

class Layout {
 public:
  Layout(Program &program, const LoweringOptions &options, Steps &steps)
      : p_(program), options_(options), steps_(steps), uses_(program), wanted_(program.buffers.size(), false) {}

  void run() {
    position_.assign(p_.kernels.size(), SIZE_MAX);
    for (size_t i = 0; i < p_.order.size(); ++i) position_[p_.order[i].index] = i;
    for (KernelId k : p_.order) {
      const auto view = spatial_convolution(k);
      if (!view) continue;
      seed(view->input);
      for (BufferId b : uses_.writes(k)) seed(b);
    }
    while (!pending_.empty()) {
      const KernelId k = p_.order[*pending_.begin()];
      pending_.erase(pending_.begin());
      if (p_.kernel(k).nest()) spread(*p_.kernel(k).nest());
    }
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i]) p_.buffers[i].order = channels_last(p_.buffers[i].shape().size());
    convert_borders();
  }

 private:
  // Convolutions that have a channels-last template: up to three spatial dims (on a GPU two, not transposed), known
  // channels, f32 (and on a CPU f64 and 8-bit integers).
  std::optional<ConvolutionView> spatial_convolution(KernelId k) const {
    auto view = convolution_view(p_, p_.kernel(k));
    const bool gpu = options_.target == LoweringOptions::Target::kGpu;
    if (!view || view->in_spatial.size() > (gpu ? 2 : 3) || (gpu && (view->info->transposed || view->integer)) ||
        !view->in_channels.is_constant() || !view->out_channels.is_constant())
      return std::nullopt;
    return view;
  }

  // Whatever a nest links element by element along batch and channel with a channels-last tensor of the same rank.
  void spread(const LoopNest &nest) {
    for (const Stage &stage : nest.stages) {
      for (const StageOutput &o : stage.outputs) {
        std::vector<BufferId> stored;
        std::vector<std::vector<Dim>> index;
        if (o.buffer.valid()) {
          stored.push_back(o.buffer);
          index.push_back(o.index);
        }
        std::vector<ScalarId> loads;
        collect_loads(p_, o.value, loads);
        for (ScalarId l : loads) {
          stored.push_back(p_.scalars.at(l).buffer);
          index.push_back(p_.scalars.at(l).index);
        }
        for (size_t i = 0; i < stored.size(); ++i) {
          if (!wanted_[stored[i].index]) continue;
          for (size_t j = 0; j < stored.size(); ++j) {
            if (wanted_[stored[j].index] || index[j].size() != index[i].size()) continue;
            if (!(index[i][0] == index[j][0]) || !(index[i][1] - index[j][1]).is_constant()) continue;
            seed(stored[j]);
          }
        }
      }
    }
  }

  // Kernels that touch what is wanted now are asked (again), in their order.
  void seed(BufferId id) {
    if (wanted_[id.index] || !may_be_reordered(p_, uses_, id) || p_.buffer(id).shape().size() < 3) return;
    if (!steps_.allowed("layout.channels_last")) return;
    steps_.record("layout.channels_last", p_.buffer(id).name, origins_of(p_, uses_, id));
    wanted_[id.index] = true;
    for (const auto *kernels : {&uses_.readers(id), &uses_.writers(id)})
      for (KernelId k : *kernels)
        if (position_[k.index] != SIZE_MAX) pending_.insert(position_[k.index]);
  }

  // Where a convolution meets a row-major tensor: it reads a channels-last copy (several share one), except the direct
  // form, which copies bands of its input anyway and reads any strides; and it writes a channels-last temporary that is
  // copied out.
  void convert_borders() {
    std::vector<BufferId> copies(p_.buffers.size());
    std::vector<KernelId> order;
    const std::vector<KernelId> old_order = p_.order;
    for (KernelId k : old_order) {
      const auto view = spatial_convolution(k);
      if (!view) {
        order.push_back(k);
        continue;
      }
      const BufferId input = view->input;
      if (p_.buffer(input).order.empty() && !view->in_channels.is(1) && !reads_any_strides(p_, *view, options_) &&
          (copies[input.index].valid() || steps_.allowed("layout.copy"))) {
        if (!copies[input.index].valid()) order.push_back(copy_of(input, copies[input.index], p_.kernel(k).origin));
        const BufferId copy = copies[input.index];
        ScalarSubstitution swap;
        swap.on_load = [&](const Scalar &load) {
          return load.buffer == input ? p_.scalars.load(copy, load.type, load.index) : ScalarId();
        };
        LoopNest nest = *p_.kernel(k).nest();
        substitute_nest(p_, nest, swap);
        p_.kernel(k).body = std::move(nest);
      }
      order.push_back(k);
      const BufferId output = view->output;
      if (output.valid() && p_.buffer(output).order.empty() && !view->out_channels.is(1) &&
          steps_.allowed("layout.copy")) {
        Buffer channels;
        channels.name = p_.buffer(output).name + "_channels_last";
        channels.type = p_.buffer(output).type;
        channels.order = channels_last(channels.shape().size());
        const BufferId temporary = p_.add_buffer(std::move(channels));
        LoopNest nest = *p_.kernel(k).nest();
        for (StageOutput &o : nest.stages.back().outputs) o.buffer = temporary;
        p_.kernel(k).body = std::move(nest);
        order.push_back(copy_kernel(temporary, output, p_.kernel(k).origin));
      }
    }
    p_.order = std::move(order);
  }

  KernelId copy_of(BufferId input, BufferId &copy, const std::vector<uint32_t> &reader) {
    Buffer buffer;
    buffer.name = p_.buffer(input).name + "_channels_last";
    buffer.type = p_.buffer(input).type;
    buffer.order = channels_last(buffer.shape().size());
    copy = p_.add_buffer(std::move(buffer));
    return copy_kernel(input, copy, reader);
  }

  // convolution: the origin of what reads or writes the copy.
  KernelId copy_kernel(BufferId from, BufferId to, const std::vector<uint32_t> &convolution) {
    steps_.record("layout.copy", p_.buffer(from).name + " to " + p_.buffer(to).name, convolution);
    Kernel kernel;
    kernel.name = p_.buffer(from).name + "_to_" + p_.buffer(to).name;
    for (char &c : kernel.name)
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) c = '_';
    if (kernel.name[0] >= '0' && kernel.name[0] <= '9') kernel.name.insert(0, "k_");
    kernel.note = p_.buffer(to).order.empty() ? "to row-major" : "to channels last";
    if (from.index < wanted_.size())
      for (KernelId k : uses_.writers(from)) kernel.origin = p_.kernel(k).origin;
    LoopNest nest;
    const Shape shape = p_.buffer(to).shape();
    std::vector<Dim> index(shape.size(), Dim(0));
    std::vector<int> axes = p_.buffer(to).order;
    if (axes.empty()) {
      axes.resize(shape.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    for (int axis : axes) {
      const Dim extent = shape[static_cast<size_t>(axis)];
      if (extent.is(1)) continue;
      const Dim counter = p_.dims->new_loop("c" + std::to_string(axis), extent);
      index[static_cast<size_t>(axis)] = counter;
      nest.loops.push_back({single_symbol(counter), extent});
    }
    Stage stage;
    StageOutput out;
    out.buffer = to;
    out.index = index;
    out.value = p_.scalars.load(from, p_.buffer(from).element(), index);
    stage.outputs.push_back(std::move(out));
    nest.stages.push_back(std::move(stage));
    kernel.body = std::move(nest);
    return p_.add_kernel(std::move(kernel));
  }

  Program &p_;
  const LoweringOptions &options_;
  Steps &steps_;
  Uses uses_;
  std::vector<bool> wanted_;
  std::vector<size_t> position_;  // by kernel, in the main order; SIZE_MAX: not in it
  std::set<size_t> pending_;      // positions of kernels to be asked
};

}  // namespace

void choose_layout(Program &program, const LoweringOptions &options, Steps &steps) {
  Layout(program, options, steps).run();
}

}  // namespace optc
