#pragma once
// What a symbol may be, in words for whoever gave it another value.

#include <string>

#include "ir/dim/dim.h"

namespace optc {

std::string range_text(const DimSymbol &symbol);  // "16 or more", "1 to 8", "4", "8 or more, a multiple of 8"

}  // namespace optc
