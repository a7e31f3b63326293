#pragma once
// The places that lowering gave to the buffers of a Program, checked while it runs: no two that live at one time lie
// over one another, each is as large as what lies in it, and nobody reaches into a place before or after its lifetime,
// when its bytes may belong to others.
//
// Bytes are not shared here: each buffer has memory of its own, which holds nothing when its lifetime begins
// (storage.h, Written). With these checks that shows all that one arena would.

#include <cstdint>
#include <string>
#include <vector>

#include "evaluate/plan.h"
#include "ir/program/program.h"

namespace optc::evaluate_detail {

class Places {
 public:
  // For one run's sizes. Constant offsets are the Program's; for symbolic sizes the search of runtime/bundle/place.h
  // gives them, as in a bundle. Sizes that a kernel finds while it runs have memory of their own, at no offset. Empty:
  // all is well; else what is wrong.
  std::string lay_out(const Program &program, const SymbolValues &symbols);
  // Why the kernel at position `step` of the main order may not touch this root buffer, which needs so many bytes
  // now; empty: it may.
  std::string refuse(const Program &program, const SymbolValues &symbols, BufferId root, int64_t bytes,
                     size_t step) const;

 private:
  std::vector<const Placement *> of_;  // by buffer
};

}  // namespace optc::evaluate_detail
