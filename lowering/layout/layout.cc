#include "lowering/layout/layout.h"

#include <algorithm>
#include <numeric>

#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"

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
  explicit Layout(Program &program) : p_(program), uses_(program), wanted_(program.buffers.size(), false) {}

  void run() {
    // Seeds: what convolutions touch and what windows (poolings) walk over.
    for (KernelId k : p_.order) {
      const auto view = convolution_view(p_, p_.kernel(k));
      if (!view || !view->in_channels.is_constant() || !view->out_channels.is_constant()) continue;
      seed(view->input);
      for (BufferId b : writes(p_, p_.kernel(k))) seed(b);
      // The residual that an epilogue adds.
      for (BufferId b : reads(p_, p_.kernel(k)))
        if (p_.buffer(b).shape().size() == p_.buffer(view->input).shape().size() && b != view->weight) seed(b);
    }
    // Spread: whatever a loop nest links with a channels-last tensor of the same rank.
    for (bool changed = true; changed;) {
      changed = false;
      for (KernelId k : p_.order) {
        if (!p_.kernel(k).nest()) continue;
        std::vector<BufferId> touched = reads(p_, p_.kernel(k));
        for (BufferId b : writes(p_, p_.kernel(k))) touched.push_back(b);
        size_t rank = 0;
        for (BufferId b : touched)
          if (wanted_[b.index]) rank = p_.buffer(b).shape().size();
        if (rank == 0) continue;
        for (BufferId b : touched)
          if (!wanted_[b.index] && p_.buffer(b).shape().size() == rank && seed(b)) changed = true;
      }
    }
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i]) p_.buffers[i].order = channels_last(p_.buffers[i].shape().size());
    convert_inputs();
  }

 private:
  bool seed(BufferId id) {
    const Buffer &b = p_.buffer(id);
    if (wanted_[id.index] || b.kind != BufferKind::kTemporary || !b.type.is_tensor() || b.alias.valid() ||
        uses_.aliased[id.index] || uses_.is_model_output(id) || b.shape().size() < 3)
      return false;
    // Library calls and control flow see row-major tensors only.
    for (const auto *list : {&uses_.readers[id.index], &uses_.writers[id.index]})
      for (KernelId k : *list)
        if (!p_.kernel(k).nest()) return false;
    wanted_[id.index] = true;
    return true;
  }

  // A convolution over a row-major tensor reads a channels-last copy of it instead; several convolutions share one copy.
  void convert_inputs() {
    std::vector<BufferId> copies(p_.buffers.size());
    std::vector<KernelId> order;
    const std::vector<KernelId> old_order = p_.order;
    for (KernelId k : old_order) {
      const auto view = convolution_view(p_, p_.kernel(k));
      if (view && view->in_channels.is_constant() && p_.buffer(view->input).order.empty() && !view->in_channels.is(1)) {
        const BufferId input = view->input;
        if (!copies[input.index].valid()) {
          order.push_back(copy_of(input, copies[input.index]));
        }
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
    }
    p_.order = std::move(order);
  }

  KernelId copy_of(BufferId input, BufferId &copy) {
    Buffer buffer;
    const Buffer original = p_.buffer(input);
    buffer.name = original.name + "_channels_last";
    buffer.type = original.type;
    buffer.order = channels_last(original.shape().size());
    copy = p_.add_buffer(std::move(buffer));
    Kernel kernel;
    kernel.name = original.name + "_to_channels_last";
    for (char &c : kernel.name)
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) c = '_';
    kernel.note = "to channels last";
    LoopNest nest;
    std::vector<Dim> index(original.shape().size());
    for (int axis : p_.buffer(copy).order) {
      const Dim extent = original.shape()[static_cast<size_t>(axis)];
      if (extent.is(1)) continue;
      const Dim counter = p_.dims->new_loop("c" + std::to_string(axis), extent);
      index[static_cast<size_t>(axis)] = counter;
      nest.loops.push_back({single_symbol(counter), extent});
    }
    Stage stage;
    StageOutput out;
    out.buffer = copy;
    out.index = index;
    out.value = p_.scalars.load(input, original.element(), index);
    stage.outputs.push_back(std::move(out));
    nest.stages.push_back(std::move(stage));
    kernel.body = std::move(nest);
    return p_.add_kernel(std::move(kernel));
  }

  Program &p_;
  Uses uses_;
  std::vector<bool> wanted_;
};

}  // namespace

void choose_layout(Program &program) { Layout(program).run(); }

}  // namespace optc
