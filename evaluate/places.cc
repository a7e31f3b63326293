#include "evaluate/places.h"

#include "ir/program/placement.h"
#include "runtime/bundle/place.h"

namespace optc::evaluate_detail {

std::string Places::lay_out(const Program &program, const SymbolValues &symbols) {
  of_.assign(program.buffers.size(), nullptr);
  std::vector<PlacedBytes> placed;
  bool constant = true;
  for (const Placement &p : program.placements) {
    const std::string name = "'" + program.buffer(p.buffer).name + "'";
    if (of_[p.buffer.index]) return name + " has two places";
    of_[p.buffer.index] = &p;
    const auto bytes = symbols.evaluate(p.bytes);
    if (!bytes) continue;
    if (*bytes < 0) return name + " has a place of " + std::to_string(*bytes) + " bytes";
    if (p.last < p.first) return name + " has a place that ends before it begins";
    const bool known = p.offset.is_constant() && p.offset.value() < kDimOverflow;
    constant = constant && known;
    placed.push_back({&p, *bytes, known ? p.offset.value() : 0});
  }
  if (!constant) {
    std::vector<int64_t> bytes, offsets(placed.size());
    std::vector<int32_t> first, last;
    for (const PlacedBytes &p : placed) {
      bytes.push_back(p.bytes);
      first.push_back(static_cast<int32_t>(p.placement->first));
      last.push_back(static_cast<int32_t>(p.placement->last));
    }
    place(bytes.data(), first.data(), last.data(), static_cast<int32_t>(placed.size()), offsets.data());
    for (size_t i = 0; i < placed.size(); ++i) placed[i].offset = offsets[i];
  }
  for (const PlacedBytes &p : placed) {
    const bool inside = !program.arena_bytes.is_constant() || program.arena_bytes.value() >= kDimOverflow ||
                        p.end() <= program.arena_bytes.value();
    if (p.offset < 0 || !inside) return "'" + program.buffer(p.placement->buffer).name + "' lies outside of the arena";
  }
  return find_overlap(program, placed);
}

std::string Places::refuse(const Program &program, const SymbolValues &symbols, BufferId root, int64_t bytes,
                           size_t step) const {
  const Buffer &buffer = program.buffer(root);
  if (buffer.kind != BufferKind::kTemporary && buffer.kind != BufferKind::kScratch) return {};
  if (!buffer.type.is_tensor() || buffer.element() == ElementType::kString) return {};
  const Placement *place = of_[root.index];
  if (!place) return "'" + buffer.name + "' has no place in memory";
  if (step < place->first)
    return "'" + buffer.name + "' is used before its place belongs to it (" + lifetime_text(program, *place) + ")";
  if (step > place->last)
    return "'" + buffer.name +
           "' is used when its place belongs to others (its lifetime: " + lifetime_text(program, *place) + ")";
  const auto given = symbols.evaluate(place->bytes);
  if (given && bytes > *given)
    return "'" + buffer.name + "' needs " + std::to_string(bytes) + " bytes, its place has " + std::to_string(*given);
  return {};
}

}  // namespace optc::evaluate_detail
