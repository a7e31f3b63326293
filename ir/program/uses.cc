#include "ir/program/uses.h"

#include <algorithm>

namespace optc {

Dim storage_bytes(ElementType type, Dim count) {
  const int bits = bit_width(type);
  return bits % 8 == 0 ? count * Dim(bits / 8) : ceil_div(count * Dim(bits), 8);
}

Dim storage_bytes(const Buffer &buffer) { return storage_bytes(buffer.element(), storage_count(buffer)); }

Uses::Uses(const Program &program)
    : program_(program),
      root_(program.buffers.size()),
      offset_(program.buffers.size()),
      names_(program.buffers.size()),
      views_(program.buffers.size()),
      result_(program.buffers.size(), false),
      readers_(program.buffers.size()),
      writers_(program.buffers.size()),
      reads_(program.kernels.size()),
      writes_(program.kernels.size()),
      place_(program.kernels.size()) {
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    BufferId b(i);
    Dim offset = 0;
    for (; program.buffer(b).alias.valid(); b = program.buffer(b).alias) offset += program.buffer(b).alias_offset;
    root_[i] = b;
    offset_[i] = offset;
    if (b.index == i) names_[i].insert(names_[i].begin(), b);
    if (b.index != i) names_[b.index].push_back(BufferId(i));
    if (program.buffers[i].alias.valid()) views_[program.buffers[i].alias.index].push_back(BufferId(i));
  }
  for (BufferId b : program.outputs) result_[b.index] = true;
  place(program.order, KernelId());
  for (size_t i = 0; i < program.kernels.size(); ++i)
    if (program.kernels[i].alive) enter(KernelId(i));
}

Dim Uses::byte_offset(BufferId b) const {
  Dim bytes = 0;
  for (; program_.buffer(b).alias.valid(); b = program_.buffer(b).alias) {
    const Buffer &view = program_.buffer(b);
    const int bits = bit_width(view.element());
    bytes += bits % 8 == 0 ? view.alias_offset * Dim(bits / 8) : floor_div(view.alias_offset * Dim(bits), Dim(8));
  }
  return bytes;
}

void Uses::place(const std::vector<KernelId> &order, KernelId owner) {
  const uint32_t sequence = static_cast<uint32_t>(owners_.size());
  owners_.push_back(owner);
  for (size_t i = 0; i < order.size(); ++i) {
    place_[order[i].index] = {sequence, static_cast<int64_t>(i)};
    const ControlFlow *control = program_.kernel(order[i]).control();
    if (!control) continue;
    for (const auto &body : control->bodies) place(body, order[i]);
    for (const auto &list : control->results)
      for (BufferId b : list)
        if (b.valid()) result_[b.index] = true;
    for (BufferId b : control->body_inputs)
      if (b.valid()) result_[b.index] = true;
  }
}

KernelId Uses::in_sequence(KernelId k, uint32_t sequence) const {
  while (k.valid() && place_[k.index].sequence != sequence) k = owners_[place_[k.index].sequence];
  return k;
}

bool Uses::any_between(const std::vector<std::set<KernelId>> &lists, BufferId b, KernelId from, KernelId to) const {
  const uint32_t sequence = place_[from.index].sequence;
  for (BufferId name : names(b))
    for (KernelId k : lists[name.index]) {
      const KernelId here = in_sequence(k, sequence);
      if (here.valid() && before(from, here) && !before(to, here)) return true;
    }
  return false;
}

bool Uses::written_between(BufferId b, KernelId from, KernelId to) const { return any_between(writers_, b, from, to); }
bool Uses::read_between(BufferId b, KernelId from, KernelId to) const { return any_between(readers_, b, from, to); }

void Uses::enter(KernelId k) {
  own_operands(program_, program_.kernel(k), reads_[k.index], writes_[k.index]);
  for (BufferId b : reads_[k.index]) readers_[b.index].insert(k);
  for (BufferId b : writes_[k.index]) writers_[b.index].insert(k);
}

void Uses::leave(KernelId k) {
  for (BufferId b : reads_[k.index]) readers_[b.index].erase(k);
  for (BufferId b : writes_[k.index]) writers_[b.index].erase(k);
  reads_[k.index].clear();
  writes_[k.index].clear();
}

void Uses::update(KernelId k) {
  leave(k);
  enter(k);
}

void Uses::remove(KernelId k) { leave(k); }

void Uses::move(KernelId k, KernelId place) { place_[k.index] = place_[place.index]; }

void add_origin(std::vector<uint32_t> &origin, const std::vector<uint32_t> &more) {
  origin.insert(origin.end(), more.begin(), more.end());
  std::sort(origin.begin(), origin.end());
  origin.erase(std::unique(origin.begin(), origin.end()), origin.end());
}

std::vector<uint32_t> origins_of(const Program &program, const Uses &uses, BufferId buffer) {
  std::vector<uint32_t> origin;
  const bool constant = program.buffer(uses.root(buffer)).kind == BufferKind::kConstant;
  for (BufferId name : uses.names(buffer))
    for (KernelId k : constant ? uses.readers(name) : uses.writers(name)) add_origin(origin, program.kernel(k).origin);
  return origin;
}

}  // namespace optc
