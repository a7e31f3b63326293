#pragma once
// Id<Tag>: a typed 32-bit index into a vector of the structure that owns the thing. Ids stay valid while the owner
// lives; what was erased keeps its id and is never reused.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace optc {

template <typename Tag>
struct Id {
  uint32_t index = UINT32_MAX;

  constexpr Id() = default;
  constexpr explicit Id(size_t i) : index(static_cast<uint32_t>(i)) {}
  constexpr bool valid() const { return index != UINT32_MAX; }
  constexpr explicit operator bool() const { return valid(); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace optc

template <typename Tag>
struct std::hash<optc::Id<Tag>> {
  size_t operator()(optc::Id<Tag> id) const noexcept { return std::hash<uint32_t>()(id.index); }
};
