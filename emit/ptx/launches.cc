#include "emit/ptx/launches.h"

#include <algorithm>

#include "emit/ptx/nests.h"
#include "ir/program/device_schedule.h"
#include "ir/program/gpu_launch.h"

namespace optc::ptx {

namespace {

constexpr size_t kWindow = 6, kMostJoined = kMostJoinedKernels;
constexpr size_t kMapBytes = 128;  // of a tensor map
// Rows that a block computes for itself take so many iterations of a stage at most: a few of each thread. (The mean of
// an image is a row of few elements and of many iterations.)
constexpr int64_t kMostRowElements = 4096;
// More blocks than a card holds at once would compute them again and again.
constexpr int64_t kMostRowBlocks = 264;
// Rows cost each product that computes them most of what a launch costs, and more beside products of f32 (measured on
// an H200): it pays for one product of 16 bits.
constexpr size_t kMostRowProducts = 1;

std::vector<BufferId> roots(const Program &program, const std::vector<BufferId> &ids) {
  std::vector<BufferId> out;
  for (BufferId id : ids) out.push_back(root_of(program, id).buffer);
  return out;
}

// The root that a kernel of rows leaves; invalid where it is none that stays in a block: one temporary, written whole,
// of few elements.
BufferId rows_result(const Program &program, const Kernel &kernel) {
  const std::vector<BufferId> written = writes(program, kernel);
  if (!kernel.nest() || written.size() != 1) return {};
  const BufferId root = root_of(program, written[0]).buffer;
  const Buffer &b = program.buffer(root);
  if (b.kind != BufferKind::kTemporary || upper_bound(storage_count(b)) > kMostRowElements) return {};
  for (BufferId id : roots(program, reads(program, kernel)))
    if (id == root) return {};
  for (const Stage &stage : kernel.nest()->stages)
    if (upper_bound(total_extent(kernel.nest()->loops) * total_extent(stage.loops)) > kMostRowElements) return {};
  return root;
}

// Whether the product reads the root as its first factor, and not as its second.
bool is_first_factor(const Program &program, const Kernel &kernel, const GemmTensorCoreSchedule &s, BufferId root) {
  ProductSum sum;
  if (!kernel.nest() || !product_sum(program, *kernel.nest(), sum)) return false;
  const auto reads_root = [&](ScalarId factor) {
    std::vector<ScalarId> loads;
    collect_loads(program, factor, loads);
    return std::any_of(loads.begin(), loads.end(),
                       [&](ScalarId id) { return root_of(program, program.scalars.at(id).buffer).buffer == root; });
  };
  return s.a.chunk_bytes > 0 && s.a.k_contiguous && reads_root(s.exchanged ? sum.rhs : sum.lhs) &&
         !reads_root(s.exchanged ? sum.lhs : sum.rhs);
}

// The product's draft with the rows in its blocks; nullopt where it does not pay, or a block has not the memory.
std::optional<Draft> draft_with_rows(const Program &program, const Kernel &rows, BufferId result, const Kernel &product,
                                     int64_t shared_bytes) {
  const auto *s = std::get_if<GemmTensorCoreSchedule>(&product.schedule);
  if (!s || element_bytes(s->type) != 2 || !is_first_factor(program, product, *s, result)) return std::nullopt;
  if (computes_indices(program, product) ||
      parameter_bytes(program, rows) + parameter_bytes(program, product) > kMostParameterBytes)
    return std::nullopt;
  for (const TensorCoreChoice &choice : s->tiles) {
    const auto scratch = row_scratch_bytes(program, *rows.nest(), static_cast<unsigned>(choice.tile.threads()), 1);
    const int64_t kept =
        upper_bound(storage_count(program.buffer(result))) * storage_size(program.buffer(result).element());
    // 1 KiB for what reductions exchange.
    if (!scratch || tensor_core_shared_bytes(s->type, choice.tile) + *scratch + kept + 1024 > shared_bytes)
      return std::nullopt;
  }
  auto draft = draft_scheduled(program, product, 1, &rows);
  if (!draft || upper_bound(draft->grid[0] * draft->grid[1] * draft->grid[2]) > kMostRowBlocks) return std::nullopt;
  return draft;
}

std::vector<BufferId> member_reads(const Program &program, const Member &member) {
  std::vector<BufferId> out = roots(program, reads(program, *member.kernel));
  if (member.rows)
    for (BufferId id : roots(program, reads(program, *member.rows))) out.push_back(id);
  return out;
}

bool meet(const Program &program, const std::vector<BufferId> &x, const std::vector<BufferId> &y) {
  for (BufferId i : x)
    for (BufferId j : y)
      if (may_share(program, i, j)) return true;
  return false;
}

// Whether two kernels may run at the same time: neither writes what the other touches.
bool independent(const Program &program, const Member &a, const Member &b) {
  const auto a_writes = roots(program, writes(program, *a.kernel)),
             b_writes = roots(program, writes(program, *b.kernel));
  return !meet(program, a_writes, b_writes) && !meet(program, a_writes, member_reads(program, b)) &&
         !meet(program, b_writes, member_reads(program, a));
}

}  // namespace

std::vector<BufferId> member_roots(const Program &program, const Member &member) {
  if (!member.rows) return launch_roots(program, *member.kernel);
  std::vector<BufferId> out;
  const BufferId kept = rows_result(program, *member.rows);
  for (const Kernel *kernel : {member.rows, member.kernel})
    for (BufferId root : launch_roots(program, *kernel))
      if (root != kept && std::find(out.begin(), out.end(), root) == out.end()) out.push_back(root);
  return out;
}

bool may_share(const Program &program, BufferId a, BufferId b) {
  if (a == b) return true;
  const Placement *pa = nullptr, *pb = nullptr;
  for (const Placement &p : program.placements) {
    if (p.buffer == a) pa = &p;
    if (p.buffer == b) pb = &p;
  }
  if (!pa || !pb) return false;  // caller's memory and constants are apart from everything
  // An open offset is chosen at run time (runtime/cuda/session.h), apart from all that lives while it does: from the
  // launch that a kernel joins on (cuda_source.cc).
  auto open = [](Dim offset) { return offset.is_constant() && offset.value() >= kDimOverflow; };
  if (open(pa->offset) || open(pb->offset)) return false;
  return !(proved_at_least(pa->offset, pb->offset + pb->bytes) || proved_at_least(pb->offset, pa->offset + pa->bytes));
}

Member Launches::member(const Program &program, const std::vector<PtxKernel> &kernels, size_t position) const {
  const auto at = [&](size_t i) { return &program.kernel(kernels[i].kernel); };
  return {at(position), rows[position] ? at(*rows[position]) : nullptr};
}

std::optional<Draft> draft_scheduled(const Program &program, const Kernel &kernel, int copies, const Kernel *rows) {
  if (const auto *product = std::get_if<GemmTensorCoreSchedule>(&kernel.schedule))
    return draft_tensor_core(program, kernel, *product, copies, rows);
  if (const auto *product = std::get_if<GemmWarpgroupSchedule>(&kernel.schedule))
    return draft_warpgroup(program, kernel, *product, copies);
  if (const auto *product = std::get_if<ConvolutionWarpgroupSchedule>(&kernel.schedule))
    return draft_warpgroup(program, kernel, *product, copies);
  if (const auto *strips = std::get_if<ConvolutionStripsSchedule>(&kernel.schedule))
    return draft_depthwise(program, kernel, *strips);
  if (const auto *steps = std::get_if<RecurrentStepsSchedule>(&kernel.schedule))
    return draft_recurrent(program, kernel, *steps);
  return std::nullopt;
}

void keep_rows_in_blocks(const Program &program, int64_t shared_bytes, Launches &launches,
                         std::vector<PtxKernel> &kernels) {
  for (const PtxKernel &k : kernels)
    if (!k.on_gpu) return;  // copies between the memories stand between kernels
  const auto kernel_at = [&](size_t i) -> const Kernel & { return program.kernel(kernels[i].kernel); };
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Kernel &rows = kernel_at(i);
    if (launches.drafts[i].size() != 1 || kernels[i].form != "rows" || computes_indices(program, rows) ||
        !data_symbols(program, rows).empty())
      continue;
    const BufferId result = rows_result(program, rows);
    if (!result.valid()) continue;
    const std::vector<BufferId> read = roots(program, reads(program, rows));
    std::vector<size_t> products;
    std::vector<Draft> drafts;
    bool all = true;
    size_t last = i;
    for (size_t j = i + 1; j < kernels.size() && all; ++j) {
      const std::vector<BufferId> here = roots(program, reads(program, kernel_at(j)));
      if (std::find(here.begin(), here.end(), result) == here.end()) continue;
      auto draft = launches.rows[j] ? std::nullopt : draft_with_rows(program, rows, result, kernel_at(j), shared_bytes);
      all = draft.has_value() && products.size() < kMostRowProducts;
      if (!all) break;
      products.push_back(j);
      drafts.push_back(std::move(*draft));
      last = j;
    }
    // What the rows are made of must still be there, and the result not be another kernel's in part.
    for (size_t j = i + 1; j <= last && all; ++j)
      all = !meet(program, roots(program, writes(program, kernel_at(j))), read);
    for (size_t j = 0; j < kernels.size() && all; ++j) {
      const std::vector<BufferId> written = roots(program, writes(program, kernel_at(j)));
      all = j == i || std::find(written.begin(), written.end(), result) == written.end();
    }
    if (!all || products.empty()) continue;
    std::string where;
    for (size_t p = 0; p < products.size(); ++p) {
      const size_t j = products[p];
      launches.rows[j] = i;
      kernels[j].form = drafts[p].form;
      launches.drafts[j].clear();
      launches.drafts[j].push_back(std::move(drafts[p]));
      where += (where.empty() ? "" : ", ") + kernel_at(j).name;
    }
    launches.drafts[i].clear();
    kernels[i].launches.clear();
    kernels[i].joined = products;
    kernels[i].form = "in each block of " + where;
  }
}

void join_independent(const Program &program, const CodeOf &code_of, Launches &launches,
                      std::vector<PtxKernel> &kernels) {
  for (const PtxKernel &k : kernels)
    if (!k.on_gpu) return;  // copies between the memories stand between kernels
  std::vector<std::vector<Draft>> &drafts = launches.drafts;
  auto kernel_at = [&](size_t i) -> const Kernel & { return program.kernel(kernels[i].kernel); };
  auto member_at = [&](size_t i) { return launches.member(program, kernels, i); };
  auto alike = [&](size_t i, size_t j) {
    return drafts[i].size() == 1 && drafts[j].size() == 1 && kernels[i].form == kernels[j].form &&
           drafts[i][0].grid[0] == drafts[j][0].grid[0] && drafts[i][0].grid[1] == drafts[j][0].grid[1] &&
           drafts[i][0].grid[2] == drafts[j][0].grid[2];
  };
  std::vector<bool> taken(kernels.size(), false);
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (taken[i] || drafts[i].size() != 1 || !data_symbols(program, kernel_at(i)).empty()) continue;
    std::vector<size_t> group;
    for (size_t j = i + 1; j < kernels.size() && j <= i + kWindow && group.size() + 1 < kMostJoined; ++j) {
      if (taken[j] || !alike(i, j) || !data_symbols(program, kernel_at(j)).empty()) continue;
      // Of all that it would come before, its own launch's other kernels included; not of what earlier launches do.
      bool free = true;
      for (size_t between = i; between < j && free; ++between) {
        const std::vector<size_t> &done = kernels[between].joined;
        free = (!done.empty() && done.back() < i) || independent(program, member_at(between), member_at(j));
      }
      if (free) group.push_back(j);
    }
    if (group.empty()) continue;
    const std::string code = code_of(member_at(i), drafts[i][0]);
    std::erase_if(group, [&](size_t j) { return code_of(member_at(j), drafts[j][0]) != code; });
    const size_t map_bytes = drafts[i][0].maps ? kMapBytes * drafts[i][0].maps(kernel_at(i)).size() : 0;
    const size_t row_bytes = launches.rows[i] ? 8 * launch_roots(program, kernel_at(*launches.rows[i])).size() : 0;
    while (!group.empty() && parameter_bytes(program, kernel_at(i), group.size() + 1) +
                                     (group.size() + 1) * (map_bytes + row_bytes) + kMapBytes >
                                 kMostParameterBytes)
      group.pop_back();
    if (group.empty()) continue;
    // Which tile that many products have together, lowering has said.
    if (auto again = draft_scheduled(program, kernel_at(i), static_cast<int>(group.size()) + 1, member_at(i).rows)) {
      drafts[i].clear();
      drafts[i].push_back(std::move(*again));
    }
    if (drafts[i][0].workspace_bytes > 0) continue;
    launches.together[i] = group;
    kernels[i].form = drafts[i][0].form + " x" + std::to_string(group.size() + 1);
    for (size_t j : group) {
      taken[j] = true;
      drafts[j].clear();
      kernels[j].launches.clear();
      kernels[j].joined = {i};
      kernels[j].form = "in the launch of " + kernel_at(i).name;
    }
  }
}

}  // namespace optc::ptx
