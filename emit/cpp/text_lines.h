#pragma once
// Lines of generated files: none is longer than kLongestLine bytes, whatever names a model has.

#include <cstddef>
#include <string>
#include <string_view>

namespace optc {

constexpr size_t kLongestLine = 140;

// C or C++ text with the same tokens: long lines go on in the next one, behind a space or a comma; long string literals
// become several beside one another, long line comments several comments. Preprocessor lines and raw strings stay.
std::string wrap_code(std::string_view text);

// One paragraph of words: the first line begins with `first`, the others with `others`. A word that is longer than a
// line is cut.
std::string wrap_words(std::string_view text, std::string_view first, std::string_view others);

}  // namespace optc
