#include "emit/ptx/launches.h"

#include <algorithm>

#include "emit/ptx/nests.h"
#include "emit/ptx/paired.h"
#include "ir/program/device_schedule.h"
#include "ir/program/gpu_launch.h"

namespace optc::ptx {

namespace {

constexpr size_t kWindow = 6, kMostJoined = kMostJoinedKernels;
constexpr size_t kMapBytes = 128;  // of a tensor map
// Rows that a block computes for itself take so many iterations of a stage at most: a few of each thread. (The mean of
// an image is a row of few elements and of many iterations.)
constexpr int64_t kMostRowElements = 4096;
// More blocks than a card holds at once would compute them again and again. (Rows cost each launch that computes them
// most of what their own would cost, and more beside products of f32, measured on an H200: it pays for one launch of
// products of 16 bits.)
constexpr int64_t kMostRowBlocks = 528;
// So many drafts share a launch at most; their code is one kernel's.
constexpr size_t kMostBeside = 4;
// A pointwise kernel of more blocks takes longer than a launch.
constexpr int64_t kMostSmallBlocks = 528;

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

// The draft of `copies` products with the rows in its blocks; nullopt where a block has not the memory.
std::optional<Draft> draft_with_rows(const Program &program, const Kernel &rows, BufferId result, const Kernel &product,
                                     const Kernel *paired, int copies, int64_t shared_bytes) {
  const auto *s = std::get_if<GemmTensorCoreSchedule>(&product.schedule);
  if (!s || element_bytes(s->type) != 2 || !is_first_factor(program, product, *s, result) ||
      computes_indices(program, product))
    return std::nullopt;
  for (const TensorCoreChoice &choice : s->tiles) {
    const auto scratch = row_scratch_bytes(program, *rows.nest(), static_cast<unsigned>(choice.tile.threads()), 1);
    const int64_t kept =
        upper_bound(storage_count(program.buffer(result))) * storage_size(program.buffer(result).element());
    // 1 KiB for what reductions exchange.
    if (!scratch || tensor_core_shared_bytes(s->type, choice.tile) + *scratch + kept + 1024 > shared_bytes)
      return std::nullopt;
  }
  return draft_scheduled(program, product, copies, &rows, paired);
}

std::vector<BufferId> member_reads(const Program &program, const Member &member) {
  std::vector<BufferId> out = roots(program, reads(program, *member.kernel));
  for (const Kernel *other : {member.rows, member.paired})
    if (other)
      for (BufferId id : roots(program, reads(program, *other))) out.push_back(id);
  return out;
}

bool meet(const Program &program, const std::vector<BufferId> &x, const std::vector<BufferId> &y) {
  for (BufferId i : x)
    for (BufferId j : y)
      if (may_share(program, i, j)) return true;
  return false;
}

// A store of a nest, and all loops around it.
struct Stored {
  const StageOutput *output;
  std::vector<Loop> loops;
};

// What a kernel stores to a root; nullopt where that is not said by a nest.
std::optional<std::vector<Stored>> stores_to(const Program &program, const Kernel &kernel, BufferId root) {
  if (!kernel.nest()) return std::nullopt;
  std::vector<Stored> out;
  for (const Stage &stage : kernel.nest()->stages)
    for (const StageOutput &output : stage.outputs) {
      if (!output.buffer.valid() || root_of(program, output.buffer).buffer != root) continue;
      std::vector<Loop> loops = kernel.nest()->loops;
      loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
      out.push_back({&output, std::move(loops)});
    }
  return out;
}

// The least and the greatest index over all loops; nullopt where it is not a sum of their counters.
std::optional<std::pair<Dim, Dim>> range_of(const Program &program, Dim index, const std::vector<Loop> &loops) {
  Dim least = index, greatest = index;
  for (const Loop &loop : loops) {
    const auto low = affine_over(program, least, loop.index), high = affine_over(program, greatest, loop.index);
    if (!low || !high || !low->coefficient.is_constant() || low->coefficient.value() < 0) return std::nullopt;
    least = low->rest;
    greatest = high->rest + high->coefficient * (loop.extent - Dim(1));
  }
  return std::make_pair(least, greatest);
}

// Whether two kernels that write the same root write it apart, as the parts of a Concat are: along one axis of one
// buffer, all of one behind all of the other.
bool write_apart(const Program &program, const Kernel &a, const Kernel &b, BufferId root) {
  const auto of_a = stores_to(program, a, root), of_b = stores_to(program, b, root);
  if (!of_a || !of_b) return false;
  for (const Stored &x : *of_a)
    for (const Stored &y : *of_b) {
      bool apart = false;
      for (size_t axis = 0; axis < x.output->index.size() && x.output->buffer == y.output->buffer; ++axis) {
        const auto in_x = range_of(program, x.output->index[axis], x.loops),
                   in_y = range_of(program, y.output->index[axis], y.loops);
        apart = apart || (in_x && in_y &&
                          (proved_at_least(in_x->first, in_y->second + Dim(1)) ||
                           proved_at_least(in_y->first, in_x->second + Dim(1))));
      }
      if (!apart) return false;
    }
  return true;
}

// Whether two kernels may run at the same time: neither writes what the other touches.
bool independent(const Program &program, const Member &a, const Member &b) {
  const auto a_writes = roots(program, writes(program, *a.kernel)),
             b_writes = roots(program, writes(program, *b.kernel));
  for (BufferId x : a_writes)
    for (BufferId y : b_writes)
      if (may_share(program, x, y) && !(x == y && write_apart(program, *a.kernel, *b.kernel, x))) return false;
  return !meet(program, a_writes, member_reads(program, b)) && !meet(program, b_writes, member_reads(program, a));
}

bool all_independent(const Program &program, const std::vector<Member> &a, const std::vector<Member> &b) {
  for (const Member &x : a)
    for (const Member &y : b)
      if (!independent(program, x, y)) return false;
  return true;
}

// Blocks of a launch of the draft's kernel alone, at most.
int64_t most_blocks(const Draft &draft) { return upper_bound(draft.grid[0] * draft.grid[1] * draft.grid[2]); }

// Parameters of `count` members like this one, tensor maps and what their rows read included.
size_t parameters_of(const Program &program, const Member &member, const Draft &draft, size_t count) {
  const size_t maps = draft.maps ? kMapBytes * draft.maps(*member.kernel).size() + kMapBytes : 0;
  size_t others = 0;
  for (const Kernel *other : {member.rows, member.paired})
    if (other) others += 8 * launch_roots(program, *other).size();
  return parameter_bytes(program, *member.kernel, count) + count * (maps + others);
}

enum class Small : uint8_t { kNone, kProduct, kPointwise };

// Which small kernels it may run beside.
Small small_kind(const Program &program, const Kernel &kernel, const Draft &draft) {
  if (draft.maps || draft.workspace_bytes > 0 || !data_symbols(program, kernel).empty()) return Small::kNone;
  if (const auto *product = std::get_if<GemmTensorCoreSchedule>(&kernel.schedule))
    return element_bytes(product->type) == 2 && upper_bound(total_extent(product->a.outer)) <= kFewRows
               ? Small::kProduct
               : Small::kNone;
  return draft.form == "pointwise" && most_blocks(draft) <= kMostSmallBlocks ? Small::kPointwise : Small::kNone;
}

}  // namespace

Launches::Launches(size_t kernels)
    : drafts(kernels), rows(kernels), paired(kernels), together(kernels), beside(kernels) {
  for (size_t i = 0; i < kernels; ++i) launch.push_back(i);
}

std::vector<size_t> Launches::leaders(size_t position) const {
  std::vector<size_t> out{position};
  out.insert(out.end(), beside[position].begin(), beside[position].end());
  return out;
}

std::vector<Member> Launches::members(const Program &program, const std::vector<PtxKernel> &kernels,
                                      size_t leader) const {
  std::vector<Member> out{member(program, kernels, leader)};
  for (size_t other : together[leader]) out.push_back(member(program, kernels, other));
  return out;
}

std::vector<Member> Launches::all_members(const Program &program, const std::vector<PtxKernel> &kernels,
                                          size_t position) const {
  std::vector<Member> out;
  for (size_t leader : leaders(position))
    for (const Member &m : members(program, kernels, leader)) out.push_back(m);
  return out;
}

std::vector<BufferId> member_roots(const Program &program, const Member &member) {
  if (!member.rows && !member.paired) return launch_roots(program, *member.kernel);
  std::vector<BufferId> out, kept;
  if (member.rows) kept.push_back(rows_result(program, *member.rows));
  if (member.paired) kept.push_back(*pair_result(program, *member.paired, *member.kernel));
  for (BufferId written : roots(program, writes(program, *member.kernel))) std::erase(kept, written);
  const auto has = [](const std::vector<BufferId> &list, BufferId id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  for (const Kernel *kernel : {member.rows, member.paired, member.kernel})
    for (BufferId root : kernel ? launch_roots(program, *kernel) : std::vector<BufferId>())
      if (!has(kept, root) && !has(out, root)) out.push_back(root);
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
  return {at(position), rows[position] ? at(*rows[position]) : nullptr,
          paired[position] ? at(*paired[position]) : nullptr};
}

std::optional<Draft> draft_scheduled(const Program &program, const Kernel &kernel, int copies, const Kernel *rows,
                                     const Kernel *paired) {
  if (const auto *product = std::get_if<GemmTensorCoreSchedule>(&kernel.schedule))
    return draft_tensor_core(program, kernel, *product, copies, rows, paired);
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

void pair_products(const Program &program, Launches &launches, std::vector<PtxKernel> &kernels) {
  for (const PtxKernel &k : kernels)
    if (!k.on_gpu) return;  // copies between the memories stand between kernels
  const auto kernel_at = [&](size_t i) -> const Kernel & { return program.kernel(kernels[i].kernel); };
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (launches.launch[i] != i || launches.paired[i] || !data_symbols(program, kernel_at(i)).empty()) continue;
    const std::vector<BufferId> read = roots(program, reads(program, kernel_at(i)));
    for (size_t j = i + 1; j < kernels.size() && j <= i + kWindow; ++j) {
      if (meet(program, roots(program, writes(program, kernel_at(j))), read)) break;
      if (launches.launch[j] != j || launches.paired[j] || !data_symbols(program, kernel_at(j)).empty() ||
          computes_indices(program, kernel_at(i)) || computes_indices(program, kernel_at(j)) ||
          !pair_result(program, kernel_at(i), kernel_at(j)))
        continue;
      auto draft = draft_scheduled(program, kernel_at(j), 1, nullptr, &kernel_at(i));
      if (!draft || parameters_of(program, {&kernel_at(j), nullptr, &kernel_at(i)}, *draft, 1) > kMostParameterBytes)
        break;
      launches.paired[j] = i;
      launches.launch[i] = j;
      launches.drafts[i].clear();
      launches.drafts[j].clear();
      launches.drafts[j].push_back(std::move(*draft));
      kernels[i].launches.clear();
      kernels[i].joined = {j};
      kernels[i].form = "in each block of " + kernel_at(j).name;
      kernels[j].form = launches.drafts[j][0].form;
      break;
    }
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
    return drafts[i].size() == 1 && drafts[j].size() == 1 && !launches.paired[i] &&
           kernels[i].form == kernels[j].form && drafts[i][0].grid[0] == drafts[j][0].grid[0] &&
           drafts[i][0].grid[1] == drafts[j][0].grid[1] && drafts[i][0].grid[2] == drafts[j][0].grid[2];
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
    while (!group.empty() && parameters_of(program, member_at(i), drafts[i][0], group.size() + 1) > kMostParameterBytes)
      group.pop_back();
    if (group.empty()) continue;
    // Which tile that many products have together, lowering has said.
    if (auto again = draft_scheduled(program, kernel_at(i), static_cast<int>(group.size()) + 1)) {
      drafts[i].clear();
      drafts[i].push_back(std::move(*again));
    }
    if (drafts[i][0].workspace_bytes > 0) continue;
    launches.together[i] = group;
    kernels[i].form = drafts[i][0].form + " x" + std::to_string(group.size() + 1);
    for (size_t j : group) {
      taken[j] = true;
      launches.launch[j] = i;
      drafts[j].clear();
      kernels[j].launches.clear();
      kernels[j].joined = {i};
      kernels[j].form = "in the launch of " + kernel_at(i).name;
    }
  }
}

namespace {

// The launch whose kernels, all of them, read the rows' result, when no other kernel does; nullopt: none.
std::optional<size_t> reading_launch(const Program &program, const Launches &launches,
                                     const std::vector<PtxKernel> &kernels, size_t at, BufferId result) {
  std::optional<size_t> launch;
  for (size_t j = 0; j < kernels.size(); ++j) {
    const std::vector<BufferId> here = roots(program, reads(program, program.kernel(kernels[j].kernel)));
    if (std::find(here.begin(), here.end(), result) == here.end()) continue;
    if (launches.rows[j] || launches.launch[j] <= at || (launch && *launch != launches.launch[j])) return std::nullopt;
    launch = launches.launch[j];
  }
  if (!launch) return std::nullopt;
  for (const Member &member : launches.all_members(program, kernels, *launch)) {
    const std::vector<BufferId> here = roots(program, reads(program, *member.kernel));
    if (std::find(here.begin(), here.end(), result) == here.end()) return std::nullopt;
  }
  return launch;
}

// Whether the rows can be computed by the launch instead: what they are made of is still there, no kernel of the launch
// writes it, and the result is no other kernel's in part.
bool may_move_rows(const Program &program, const Launches &launches, const std::vector<PtxKernel> &kernels, size_t at,
                   size_t launch, BufferId result) {
  const std::vector<BufferId> read = roots(program, reads(program, program.kernel(kernels[at].kernel)));
  for (size_t j = 0; j < kernels.size(); ++j) {
    if (j == at) continue;
    const std::vector<BufferId> written = roots(program, writes(program, program.kernel(kernels[j].kernel)));
    if (std::find(written.begin(), written.end(), result) != written.end()) return false;
    if (launches.launch[j] > at && launches.launch[j] <= launch && meet(program, written, read)) return false;
  }
  return true;
}

// The drafts of the launch with the rows in their blocks; empty where a block has not the memory, or it does not pay.
std::vector<Draft> drafts_with_rows(const Program &program, const Kernel &rows, BufferId result, size_t launch,
                                    int64_t shared_bytes, const Launches &launches,
                                    const std::vector<PtxKernel> &kernels) {
  std::vector<Draft> drafts;
  size_t parameters = 0;
  int64_t blocks = 0;
  for (size_t leader : launches.leaders(launch)) {
    const Kernel &product = program.kernel(kernels[leader].kernel);
    const size_t count = launches.together[leader].size() + 1;
    const Kernel *paired = launches.member(program, kernels, leader).paired;
    auto draft = draft_with_rows(program, rows, result, product, paired, static_cast<int>(count), shared_bytes);
    if (!draft) return {};
    parameters += parameters_of(program, {&product, &rows, paired}, *draft, count);
    blocks += most_blocks(*draft) * static_cast<int64_t>(count);
    drafts.push_back(std::move(*draft));
  }
  if (parameters > kMostParameterBytes || blocks > kMostRowBlocks) return {};
  return drafts;
}

std::string form_of(const Launches &launches, size_t launch) {
  std::string form;
  for (size_t leader : launches.leaders(launch)) {
    const size_t count = launches.together[leader].size() + 1;
    form +=
        (form.empty() ? "" : " + ") + launches.drafts[leader][0].form + (count > 1 ? " x" + std::to_string(count) : "");
  }
  return form;
}

}  // namespace

void keep_rows_in_blocks(const Program &program, int64_t shared_bytes, Launches &launches,
                         std::vector<PtxKernel> &kernels) {
  for (const PtxKernel &k : kernels)
    if (!k.on_gpu) return;  // copies between the memories stand between kernels
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Kernel &rows = program.kernel(kernels[i].kernel);
    if (launches.drafts[i].size() != 1 || launches.launch[i] != i || !launches.beside[i].empty() ||
        kernels[i].form != "rows" || computes_indices(program, rows) || !data_symbols(program, rows).empty())
      continue;
    const BufferId result = rows_result(program, rows);
    if (!result.valid()) continue;
    const auto launch = reading_launch(program, launches, kernels, i, result);
    if (!launch || !may_move_rows(program, launches, kernels, i, *launch, result)) continue;
    std::vector<Draft> drafts = drafts_with_rows(program, rows, result, *launch, shared_bytes, launches, kernels);
    if (drafts.empty()) continue;
    const std::vector<size_t> leaders = launches.leaders(*launch);
    std::string where;
    for (size_t p = 0; p < leaders.size(); ++p) {
      launches.drafts[leaders[p]].clear();
      launches.drafts[leaders[p]].push_back(std::move(drafts[p]));
    }
    for (size_t j = 0; j < kernels.size(); ++j)
      if (launches.launch[j] == *launch) {
        launches.rows[j] = i;
        where += (where.empty() ? "" : ", ") + program.kernel(kernels[j].kernel).name;
      }
    kernels[*launch].form = form_of(launches, *launch);
    launches.launch[i] = *launch;
    launches.drafts[i].clear();
    kernels[i].launches.clear();
    kernels[i].joined = {*launch};
    kernels[i].form = "in each block of " + where;
  }
}

void join_beside(const Program &program, Launches &launches, std::vector<PtxKernel> &kernels) {
  for (const PtxKernel &k : kernels)
    if (!k.on_gpu) return;  // copies between the memories stand between kernels
  const auto kind_of = [&](size_t i) {
    return launches.launch[i] == i && launches.drafts[i].size() == 1
               ? small_kind(program, program.kernel(kernels[i].kernel), launches.drafts[i][0])
               : Small::kNone;
  };
  const auto members = [&](size_t i) { return launches.all_members(program, kernels, i); };
  const auto parameters = [&](size_t i) {
    return parameters_of(program, launches.member(program, kernels, i), launches.drafts[i][0],
                         launches.together[i].size() + 1);
  };
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Small kind = kind_of(i);
    if (kind == Small::kNone) continue;
    size_t bytes = parameters(i);
    // What stands between the two and what the launch has got already would come after the kernel.
    std::vector<Member> before = members(i);
    for (size_t j = i + 1, seen = 0;
         j < kernels.size() && seen < kWindow && launches.beside[i].size() + 1 < kMostBeside; ++j) {
      if (launches.launch[j] != j) continue;
      ++seen;
      const std::vector<Member> here = members(j);
      const bool fits = kind_of(j) == kind && launches.drafts[j][0].threads == launches.drafts[i][0].threads &&
                        launches.drafts[j][0].min_blocks == launches.drafts[i][0].min_blocks &&
                        bytes + parameters(j) <= kMostParameterBytes && all_independent(program, before, here);
      before.insert(before.end(), here.begin(), here.end());
      if (!fits) continue;
      bytes += parameters(j);
      launches.beside[i].push_back(j);
      for (size_t member = 0; member < kernels.size(); ++member)
        if (launches.launch[member] == j) {
          launches.launch[member] = i;
          kernels[member].launches.clear();
          kernels[member].joined = {i};
          kernels[member].form = "in the launch of " + program.kernel(kernels[i].kernel).name;
        }
    }
    if (!launches.beside[i].empty()) kernels[i].form = form_of(launches, i);
  }
}

}  // namespace optc::ptx