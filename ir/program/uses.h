#pragma once
// Uses: who reads and writes each buffer of a Program, where a buffer lies in its storage, and where a kernel stands in
// the execution order. One index for all passes; it is brought up to date kernel by kernel, so that a pass over n
// kernels stays linear.
//
// The index belongs to whoever transforms or reads the Program, not to the Program: whoever changes a kernel says so
// with update(), remove() or move(). Kernels, buffers and sequences that are added are not seen by it: make a new one.

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "ir/program/program.h"

namespace optc {

// What a kernel reads and writes itself: of control flow its operands, not what its bodies touch. Appends.
void own_operands(const Program &program, const Kernel &kernel, std::vector<BufferId> &in, std::vector<BufferId> &out);

// Adds `more` to the origin of a kernel, or of what is said of several: sorted, each once.
void add_origin(std::vector<uint32_t> &origin, const std::vector<uint32_t> &more);

// Bytes of so many elements, packed where they are smaller than a byte; 0 where they have no width (strings).
Dim storage_bytes(ElementType type, Dim count);
// Of a buffer as it is stored, padding included.
Dim storage_bytes(const Buffer &buffer);

class Uses {
 public:
  explicit Uses(const Program &program);

  // --- storage
  // The buffer whose bytes `b` shares, itself when it is no view.
  BufferId root(BufferId b) const { return root_[b.index]; }
  // Where `b` starts in its root, in elements.
  Dim offset(BufferId b) const { return offset_[b.index]; }
  // The same in bytes: every view on the way counts in its own elements.
  Dim byte_offset(BufferId b) const;
  // Every name of the bytes of `b`: its root first, then the views of it.
  const std::vector<BufferId> &names(BufferId b) const { return names_[root_[b.index].index]; }
  // The views of `b` itself, not those of its views.
  const std::vector<BufferId> &views(BufferId b) const { return views_[b.index]; }
  // The outputs of the Program and what control flow takes from or puts into its bodies: must exist in memory.
  bool is_result(BufferId b) const { return result_[b.index]; }

  // --- kernels
  // Kernels that name `b` themselves. Control flow reads and writes its own operands; what its bodies do is told of the
  // kernels in them.
  const std::set<KernelId> &readers(BufferId b) const { return readers_[b.index]; }
  const std::set<KernelId> &writers(BufferId b) const { return writers_[b.index]; }
  const std::vector<BufferId> &reads(KernelId k) const { return reads_[k.index]; }
  const std::vector<BufferId> &writes(KernelId k) const { return writes_[k.index]; }

  // --- places
  bool same_sequence(KernelId a, KernelId b) const { return place_[a.index].sequence == place_[b.index].sequence; }
  // Of two kernels of one sequence: whether `a` runs first.
  bool before(KernelId a, KernelId b) const { return place_[a.index].position < place_[b.index].position; }
  // Whether some kernel writes (reads) bytes of `b`'s storage after `from` and up to `to`, which are of one sequence;
  // `from` itself is not asked, `to` is. Control flow in between counts with all that its bodies do.
  bool written_between(BufferId b, KernelId from, KernelId to) const;
  bool read_between(BufferId b, KernelId from, KernelId to) const;

  // --- changes
  void update(KernelId k);                // its body was changed
  void remove(KernelId k);                // it was taken out
  void move(KernelId k, KernelId place);  // it runs where `place` ran, which is or will be removed

 private:
  struct Place {
    uint32_t sequence = 0;
    int64_t position = -1;  // -1: in no sequence
  };
  void place(const std::vector<KernelId> &order, KernelId owner);
  // The kernel of sequence `sequence` that `k` is or is inside of; invalid: none.
  KernelId in_sequence(KernelId k, uint32_t sequence) const;
  bool any_between(const std::vector<std::set<KernelId>> &lists, BufferId b, KernelId from, KernelId to) const;
  void enter(KernelId k);
  void leave(KernelId k);

  const Program &program_;
  std::vector<BufferId> root_;
  std::vector<Dim> offset_;
  std::vector<std::vector<BufferId>> names_, views_;
  std::vector<bool> result_;
  std::vector<std::set<KernelId>> readers_, writers_;
  std::vector<std::vector<BufferId>> reads_, writes_;
  std::vector<Place> place_;
  std::vector<KernelId> owners_;  // by sequence: the control flow that it is a body of; invalid for the main one
};

// The origin of what writes a buffer's storage; of a constant, of what reads it.
std::vector<uint32_t> origins_of(const Program &program, const Uses &uses, BufferId buffer);

}  // namespace optc
