#pragma once
// Names of emitted code by scope, and texts that hold any name.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ir/names.h"
#include "ir/program/program.h"

namespace optc {

// A bundle's name for a wish: an identifier of at most 64 letters that is free as a namespace, a CMake target, a header
// NAME.h and a Python module.
std::string bundle_name(std::string_view wish);

// Names already taken in a scope of the emitted code.
class NameScope {
 public:
  enum class Use : uint8_t { kKernel, kSchedule, kHeader };  // a function of kernels_*; model*.cpp; NAME.h, NAME.hpp
  NameScope() = default;
  explicit NameScope(Use use);  // what the code there uses itself is taken
  // `wish` as an identifier, with a number behind it when it is taken.
  std::string unique(std::string_view wish, size_t longest = 64);
  void take(std::string name) { taken_.insert(std::move(name)); }
  bool has(const std::string &name) const { return taken_.count(name) != 0; }

 private:
  std::unordered_set<std::string> taken_;
};

// `code` (C++) as it is but for names: without comments, and each name of `names` by the number of its first
// appearance, `own` and what begins with "OWN_" by OWN. So two functions that differ in names alone give the same text.
// Names behind a '.' are members and stay.
std::string without_names(std::string_view code, const NameScope &names, const std::string &own);

// `code` with another name for `own`, and for what begins with "own_". Comments and strings stay.
std::string with_own_name(std::string_view code, const std::string &own, const std::string &name);

// What a kernel's function calls a buffer by the part that it plays there: x, y, weights, bias, scale, constant ...
std::string role_name(const Buffer &buffer, bool written);

// The text of a C string literal, quotes included.
std::string string_literal(std::string_view text);
// Strings as the items of a C array of optc_string or OptcLibString, one a line; of an empty list one that is not read.
std::string string_items(const std::vector<std::string> &texts);
// One line of text that can stand in a // comment.
std::string comment_text(std::string_view text);

}  // namespace optc
