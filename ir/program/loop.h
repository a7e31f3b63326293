#pragma once
// One loop of a kernel: `index` is a symbol of kind kLoop with that extent.

#include "ir/dim/dim.h"

namespace optc {

struct Loop {
  const DimSymbol *index = nullptr;
  Dim extent;
  friend bool operator==(const Loop &, const Loop &) = default;
};

}  // namespace optc
