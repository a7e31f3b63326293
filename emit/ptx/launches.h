#pragma once
// Which kernels share a launch. Each kernel of a Program has drafts; here some get the work of others, too.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emit/ptx/draft.h"
#include "emit/ptx/ptx.h"

namespace optc::ptx {

// A kernel in a launch, the kernel of rows (null: none) that each block of it computes before it, and the product that
// its blocks sum, too (draft_tensor_core).
struct Member {
  const Kernel *kernel = nullptr;
  const Kernel *rows = nullptr;
  const Kernel *paired = nullptr;
};

// What the launches of a member get pointers to: the roots of what it touches, without what stays in its blocks.
std::vector<BufferId> member_roots(const Program &program, const Member &member);

// Whether two buffers may share bytes: roots in the arena whose placements meet in space.
bool may_share(const Program &program, BufferId a, BufferId b);

// The launches of a Program, by position in its order.
struct Launches {
  std::vector<std::vector<Draft>> drafts;     // empty: another kernel's draft does this one's work
  std::vector<std::optional<size_t>> rows;    // the kernel of rows that each block computes first
  std::vector<std::optional<size_t>> paired;  // the product that each block sums beside its own
  std::vector<std::vector<size_t>> together;  // the kernels of equal code that the kernel's draft works for, too
  // The kernels whose drafts, of other code, are more blocks of the launch.
  std::vector<std::vector<size_t>> beside;
  std::vector<size_t> launch;  // the kernel whose launch does this one's work

  explicit Launches(size_t kernels);
  // The kernels of the launch's drafts: `position` itself and those beside it.
  std::vector<size_t> leaders(size_t position) const;
  Member member(const Program &program, const std::vector<PtxKernel> &kernels, size_t position) const;
  // What a draft works for, its own kernel first.
  std::vector<Member> members(const Program &program, const std::vector<PtxKernel> &kernels, size_t leader) const;
  // The same for all drafts of a launch.
  std::vector<Member> all_members(const Program &program, const std::vector<PtxKernel> &kernels, size_t position) const;
};

// A kernel's code without its name.
using CodeOf = std::function<std::string(const Member &, const Draft &)>;

// Products of few rows whose result only the epilogue of another product of the same rows reads are summed in that
// one's blocks (paired.h).
void pair_products(const Program &program, Launches &launches, std::vector<PtxKernel> &kernels);
// Kernels of equal code that are independent of one another and of what stands between them run in one launch, as more
// blocks (the products for key and value, say). What is drafted changes for products, whose tile is that of all of them
// together.
void join_independent(const Program &program, const CodeOf &code_of, Launches &launches,
                      std::vector<PtxKernel> &kernels);
// Small kernels of any code that are independent of one another and of what stands between them run in one launch, each
// in blocks of its own: products of few rows beside one another (the query's beside those of key and value), pointwise
// kernels beside one another (the rotations of query and key, the copies into two caches). On a chain of small kernels
// a launch is what takes the time, not what it does.
void join_beside(const Program &program, Launches &launches, std::vector<PtxKernel> &kernels);
// Kernels of a few rows (LayerNorm of one token) whose result the products of 16 bits of one launch alone read, all of
// them: every block computes the rows for itself and keeps them in shared memory, which is quicker than a launch of
// their own. `shared_bytes`: what a block may have. After the two above.
void keep_rows_in_blocks(const Program &program, int64_t shared_bytes, Launches &launches,
                         std::vector<PtxKernel> &kernels);

// The draft of a kernel with a template as its schedule says; nullopt: another one, or (a fault of optc) a nest of
// another form. copies: how many such kernels one launch runs; rows, paired: as Member has them.
std::optional<Draft> draft_scheduled(const Program &program, const Kernel &kernel, int copies = 1,
                                     const Kernel *rows = nullptr, const Kernel *paired = nullptr);

}  // namespace optc::ptx
