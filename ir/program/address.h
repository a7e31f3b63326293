#pragma once
// Places that a Program can name: offsets into memory are Dims, and Dims end (ir/dim/saturation.h).

#include "ir/program/program.h"

namespace optc {

// Whether every place that `nest` reads or writes and the number of its iterations are values: an expression of too
// many parts saturates, and would be taken for a number. What large indices a nest needs has names
// (with_named_entries).
bool addressable(const Program &program, const LoopNest &nest);

// `index` of an element of `buffer`, its large entries as symbols of their own (scalars that are computed where they
// are used, as an index that the model computes) where its offset were an expression of more than kLargeOffset parts.
std::vector<Dim> with_named_entries(Program &program, BufferId buffer, std::vector<Dim> index);

}  // namespace optc
