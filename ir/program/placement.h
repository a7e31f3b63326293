#pragma once
// What must hold of the places of a Program's buffers (Program::placements, filled by lowering/buffers):
//  * each is the place of a temporary or scratch buffer that is no view, of as many bytes as that takes, and the only
//    one of it;
//  * its lifetime covers every kernel that touches one of the buffer's names (control flow counts as one step, with all
//    that its bodies do) and, where a result of the Program lies in it, the end, the step Program::order.size();
//  * constant offsets lie in the arena, and two that live at one step share no byte.
// And of results in the bytes of operands: a kernel that writes all of a storage by one name and reads it by another
// takes it over. After it only the new name and views of that one hold values.
//
// Sizes that are not constant are laid out at run time; the evaluator checks those (evaluate/places.h).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/program/program.h"
#include "ir/program/uses.h"

namespace optc {

// A placement with the numbers of one run.
struct PlacedBytes {
  const Placement *placement = nullptr;
  int64_t bytes = 0, offset = 0;
  int64_t end() const { return offset + bytes; }
};

// Two that live at one step and share bytes, as text; empty: there are none. Sorts the list. Linear where few buffers
// live at one time.
std::string find_overlap(const Program &program, std::vector<PlacedBytes> &placed);
// "from kernel 'a' to 'b'"
std::string lifetime_text(const Program &program, const Placement &placement);

// The memory of a bundle on the CPU, as its manifest, its pages and its ABI tell of it: the Program's placements, and
// the row scratch of kernels, which each thread has for itself while such a kernel runs.
struct MemoryPlan {
  struct Item {
    std::string name;
    Dim bytes;                   // of row scratch: for one thread
    size_t first = 0, last = 0;  // steps of the main order; its length: the end
    int64_t offset = -1;         // of row scratch: for one thread. -1: the dims of a run decide
    bool each_thread = false;
  };
  std::vector<Item> items;
  // For one thread; every further one adds its row scratch. -1: the dims of a run decide.
  int64_t arena_bytes = -1, lower_bound_bytes = -1;
  // Where the dims decide: the most that any in their ranges take, for one thread; -1: these symbols have no bound.
  int64_t peak_bytes = -1;
  std::vector<std::string> open;
};

// The sums of bytes that live at one step, without those that another one always exceeds, at most 64: the arena is no
// smaller than the largest of them (each item takes a multiple of 64), and seldom larger. For one thread.
std::vector<Dim> live_sums(const MemoryPlan &plan);

// First and last step of the main order that touches each storage, by its root; `touched` false: none does.
struct Lifetime {
  size_t first = SIZE_MAX, last = 0;
  bool touched() const { return first != SIZE_MAX; }
};
std::vector<Lifetime> lifetimes(const Program &program, const Uses &uses);

// Calls `fail` with each thing that does not hold. Programs without placements were not placed yet: nothing is said.
void check_placements(const Program &program, const std::function<void(const std::string &)> &fail);
// The same of storages that are taken over (see above).
void check_taken_over(const Program &program, const std::function<void(const std::string &)> &fail);

}  // namespace optc
