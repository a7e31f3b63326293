#pragma once
// States: memory of the caller that a run reads as an input and leaves as an output (`--alias past=present`).
//
// The storage is the output's buffer; the input's buffer is a view of it, so that every pass sees by the root that both
// are one. Where the output is longer than the input along an axis (a cache that grows), the memory has a capacity
// there: both are stored with that many steps (Buffer::padded), so that what is there stays where it is from run to
// run. The capacity is a symbol of its own; states whose input has one length share it.
//
// What must hold (P14, P15 of the verifier):
//  * input and output have the same elements and dims, but for the axis, and the same strides;
//  * no kernel reads of the input what a kernel before it has replaced, nor what it replaces itself, unless each
//    element is read only where it is written. Behind the input's end nothing is replaced.

#include <functional>
#include <string>
#include <string_view>

#include "ir/program/program.h"
#include "ir/program/uses.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// "past -> present axis 2 capacity past_capacity in_place"; names are quoted where they need it.
std::string print(const Program &program, const State &state);
// What print() gives; kInvalid where it is not of this Program.
Result<State> parse_state(std::string_view text, const Program &program, Diagnostics &diagnostics);

// Whether a store of the storage's own name may touch elements that the input has. One that stores each of them as it
// was, or lies behind the input's end, does not.
bool replaces_input(const Program &program, const State &state, const StageOutput &store);
// Whether the store leaves elements of the input as they are: it stores what it loads from there.
bool keeps_input(const Program &program, const State &state, const StageOutput &store);

// The first kernel that reads of the input what is replaced by then; invalid: there is none. `replaced` (may be null)
// gets the kernel that replaced it.
KernelId first_stale_read(const Program &program, const Uses &uses, const State &state, KernelId *replaced = nullptr);

// Calls `fail` with each thing that does not hold, under its number.
void check_states(const Program &program, const std::function<void(const char *, const std::string &)> &fail);

}  // namespace optc
