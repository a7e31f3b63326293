#include "emit/ptx/ptx.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <map>

#include "emit/ptx/draft.h"
#include "emit/ptx/target.h"
#include "ir/program/device_schedule.h"
#include "ir/program/gpu_launch.h"
#include "ir/program/gpu_machine.h"

namespace optc {

namespace {

using ptx::Draft;

// Whether two buffers may share bytes: roots in the arena whose placements meet in space.
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

// Whether two kernels may run at the same time: neither writes what the other touches.
bool independent(const Program &program, const Kernel &a, const Kernel &b) {
  auto roots = [&](const std::vector<BufferId> &ids) {
    std::vector<BufferId> out;
    for (BufferId id : ids) out.push_back(root_of(program, id).buffer);
    return out;
  };
  auto meet = [&](const std::vector<BufferId> &x, const std::vector<BufferId> &y) {
    for (BufferId i : x)
      for (BufferId j : y)
        if (may_share(program, i, j)) return true;
    return false;
  };
  const auto a_writes = roots(writes(program, a)), b_writes = roots(writes(program, b));
  return !meet(a_writes, b_writes) && !meet(a_writes, roots(reads(program, b))) &&
         !meet(b_writes, roots(reads(program, a)));
}

constexpr size_t kWindow = 6, kMostJoined = kMostJoinedKernels;
constexpr size_t kMapBytes = 128;  // of a tensor map

struct Mark {
  llvm::Function *function = nullptr;
  unsigned threads = 0, min_blocks = 0;
  std::vector<llvm::Instruction *> rolled;
  std::vector<unsigned> maps;
};

// A kernel with a template as its schedule says; nullopt: another one, or (a fault of optc) a nest of another form.
std::optional<Draft> draft_scheduled(const Program &program, const Kernel &kernel, int copies = 1) {
  if (const auto *product = std::get_if<GemmTensorCoreSchedule>(&kernel.schedule))
    return ptx::draft_tensor_core(program, kernel, *product, copies);
  if (const auto *product = std::get_if<GemmWarpgroupSchedule>(&kernel.schedule))
    return ptx::draft_warpgroup(program, kernel, *product, copies);
  if (const auto *product = std::get_if<ConvolutionWarpgroupSchedule>(&kernel.schedule))
    return ptx::draft_warpgroup(program, kernel, *product, copies);
  if (const auto *strips = std::get_if<ConvolutionStripsSchedule>(&kernel.schedule))
    return ptx::draft_depthwise(program, kernel, *strips);
  if (const auto *steps = std::get_if<RecurrentStepsSchedule>(&kernel.schedule))
    return ptx::draft_recurrent(program, kernel, *steps);
  return std::nullopt;
}

bool is_scheduled(const Kernel &kernel) {
  return std::holds_alternative<GemmTensorCoreSchedule>(kernel.schedule) ||
         std::holds_alternative<GemmWarpgroupSchedule>(kernel.schedule) ||
         std::holds_alternative<ConvolutionWarpgroupSchedule>(kernel.schedule) ||
         std::holds_alternative<ConvolutionStripsSchedule>(kernel.schedule) ||
         std::holds_alternative<RecurrentStepsSchedule>(kernel.schedule);
}

class Emitter : public PtxEmitter {
 public:
  Result<PtxOutput> emit(const Program &program, const PtxOptions &options, Diagnostics &diagnostics) override {
    std::vector<ptx::Target> targets;
    for (const std::string &name : options.targets) {
      auto target = ptx::parse_target(name);
      if (!target)
        return diagnostics.error(ErrorKind::kUsage, "unknown GPU target '" + name + "'", {},
                                 "known: " + gpu_target_names());
      targets.push_back(*target);
    }
    PtxOutput output;
    output.llvm_version = ptx::llvm_version();
    output.kernels.resize(program.order.size());
    std::vector<std::vector<Draft>> drafts(program.order.size());
    for (size_t i = 0; i < program.order.size(); ++i) {
      const Kernel &kernel = program.kernel(program.order[i]);
      PtxKernel &out = output.kernels[i];
      out.kernel = program.order[i];
      out.reason = reason_against_gpu(program, kernel);
      if (!out.reason.empty()) continue;
      if (is_scheduled(kernel)) {
        auto draft = draft_scheduled(program, kernel);
        if (!draft || (draft->maps && !all_have_warpgroups(options.targets)))
          return diagnostics.error(ErrorKind::kInternal,
                                   "kernel '" + kernel.name + "' has not the form of its schedule '" +
                                       print(program, kernel.schedule) + "':\n" + print(program, kernel));
        drafts[i] = {std::move(*draft)};
      } else {
        drafts[i] = ptx::draft_attention(program, kernel);
        if (drafts[i].empty()) drafts[i] = ptx::draft_loops(program, kernel, &out.reason);
      }
      out.on_gpu = out.reason.empty();
      out.launches.resize(drafts[i].size());
      for (const Draft &draft : drafts[i]) out.form += (out.form.empty() ? "" : ", ") + draft.form;
    }
    const std::vector<std::vector<size_t>> joined = join(program, drafts, output.kernels);
    for (const ptx::Target &target : targets) {
      std::string error;
      auto text = module_text(program, target, drafts, joined, output.kernels, &error);
      if (!text) return diagnostics.error(ErrorKind::kInternal, "PTX for " + target.name() + ": " + error);
      output.modules.push_back({target.name(), std::move(*text)});
    }
    return output;
  }

 private:
  // Kernels of equal code that are independent of one another and of what stands between them run in one launch, as
  // more blocks (the products for query, key and value, say): by position, the positions whose work that one does, too.
  // What is drafted changes for products, whose tile is that of all of them together.
  static std::vector<std::vector<size_t>> join(const Program &program, std::vector<std::vector<Draft>> &drafts,
                                               std::vector<PtxKernel> &kernels) {
    std::vector<std::vector<size_t>> joined(kernels.size());
    for (const PtxKernel &k : kernels)
      if (!k.on_gpu) return joined;  // copies between the memories stand between kernels
    auto kernel_at = [&](size_t i) -> const Kernel & { return program.kernel(kernels[i].kernel); };
    auto alike = [&](size_t i, size_t j) {
      return drafts[i].size() == 1 && drafts[j].size() == 1 && kernels[i].form == kernels[j].form &&
             drafts[i][0].grid[0] == drafts[j][0].grid[0] && drafts[i][0].grid[1] == drafts[j][0].grid[1] &&
             drafts[i][0].grid[2] == drafts[j][0].grid[2];
    };
    std::vector<bool> taken(kernels.size(), false);
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (taken[i] || !data_symbols(program, kernel_at(i)).empty()) continue;
      std::vector<size_t> group;
      for (size_t j = i + 1; j < kernels.size() && j <= i + kWindow && group.size() + 1 < kMostJoined; ++j) {
        if (taken[j] || !alike(i, j) || !data_symbols(program, kernel_at(j)).empty()) continue;
        bool free = true;  // of all that it would come before, its own launch's other kernels included
        for (size_t between = i; between < j && free; ++between)
          free = independent(program, kernel_at(between), kernel_at(j));
        if (free) group.push_back(j);
      }
      if (group.empty()) continue;
      const std::string code = code_of(program, kernel_at(i), drafts[i][0]);
      std::erase_if(group, [&](size_t j) { return code_of(program, kernel_at(j), drafts[j][0]) != code; });
      const size_t map_bytes = drafts[i][0].maps ? kMapBytes * drafts[i][0].maps(kernel_at(i)).size() : 0;
      while (!group.empty() &&
             parameter_bytes(program, kernel_at(i), group.size() + 1) + (group.size() + 1) * map_bytes + kMapBytes >
                 kMostParameterBytes)
        group.pop_back();
      if (group.empty()) continue;
      // Which tile that many products have together, lowering has said.
      if (auto again = draft_scheduled(program, kernel_at(i), static_cast<int>(group.size()) + 1))
        drafts[i] = {std::move(*again)};
      if (drafts[i][0].workspace_bytes > 0) continue;
      joined[i] = group;
      kernels[i].form = drafts[i][0].form + " x" + std::to_string(group.size() + 1);
      for (size_t j : group) {
        taken[j] = true;
        drafts[j].clear();
        kernels[j].launches.clear();
        kernels[j].joined = i;
        kernels[j].form = "in the launch of " + kernel_at(i).name;
      }
    }
    return joined;
  }

  // A kernel's code without its name.
  static std::string code_of(const Program &program, const Kernel &kernel, const Draft &draft) {
    llvm::LLVMContext context;
    ptx::Machine machine(ptx::Target{90, true});
    auto module = machine.new_module(context, "alone");
    std::map<std::string, std::pair<std::string, unsigned>> known;
    std::vector<Mark> marks;
    PtxLaunch launch;
    write_function(program, {&kernel}, draft, *module, "kernel", true, known, marks, launch);
    return known.begin()->first;
  }

  static std::optional<std::string> module_text(const Program &program, const ptx::Target &target,
                                                const std::vector<std::vector<Draft>> &drafts,
                                                const std::vector<std::vector<size_t>> &joined,
                                                std::vector<PtxKernel> &kernels, std::string *error) {
    llvm::LLVMContext context;
    ptx::Machine machine(target);
    auto module = machine.new_module(context, program.name);
    std::map<std::string, std::pair<std::string, unsigned>> known;  // code without its name -> entry, shared bytes
    std::vector<Mark> marks;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (!kernels[i].on_gpu) continue;
      const Kernel &kernel = program.kernel(kernels[i].kernel);
      for (size_t j = 0; j < drafts[i].size(); ++j) {
        const std::string name = kernel.name + (drafts[i].size() > 1 ? "_" + std::to_string(j) : "");
        std::vector<const Kernel *> members{&kernel};
        for (size_t other : joined[i]) members.push_back(&program.kernel(kernels[other].kernel));
        write_function(program, members, drafts[i][j], *module, name, target.sm >= 90, known, marks,
                       kernels[i].launches[j]);
      }
    }
    for (const Mark &mark : marks)
      ptx::mark_kernel(*mark.function, mark.threads, mark.min_blocks, mark.rolled, mark.maps);
    return machine.print(*module, error);
  }

  // `members` have equal code; the draft is the first one's. Each has its share of the grid's last dimension.
  static void write_function(const Program &program, const std::vector<const Kernel *> &members, const Draft &draft,
                             llvm::Module &module, const std::string &name, bool chained,
                             std::map<std::string, std::pair<std::string, unsigned>> &known, std::vector<Mark> &marks,
                             PtxLaunch &launch) {
    const Kernel &kernel = *members[0];
    launch.arguments.clear();
    std::vector<ptx::ParamType> params;
    std::vector<BufferId> roots;  // of the first
    bool invariant = true;
    for (const Kernel *member : members) {
      const std::vector<BufferId> here = launch_roots(program, *member);
      const auto written_buffers = writes(program, *member);
      for (BufferId root : here) {
        bool written = false;
        for (BufferId id : written_buffers) written = written || may_share(program, root, root_of(program, id).buffer);
        for (BufferId id : reads(program, *member))
          if (written && root_of(program, id).buffer == root) invariant = false;
        const BufferKind kind = program.buffer(root).kind;
        params.push_back(written ? ptx::ParamType::kWritePointer
                         : kind == BufferKind::kConstant || kind == BufferKind::kInput || !chained
                             ? ptx::ParamType::kReadPointer
                             : ptx::ParamType::kSharedPointer);
        launch.arguments.push_back({PtxArgument::Kind::kBuffer, root, nullptr, {}});
      }
      if (member == members[0]) roots = here;
    }
    const size_t pointers = params.size();
    const std::vector<const DimSymbol *> symbols = launch_symbols(program, kernel);
    for (const DimSymbol *symbol : symbols) {
      params.push_back(ptx::ParamType::kI32);
      launch.arguments.push_back({PtxArgument::Kind::kSymbol, {}, symbol, {}});
    }
    if (draft.workspace_bytes > 0) {
      params.push_back(ptx::ParamType::kWritePointer);
      launch.arguments.push_back({PtxArgument::Kind::kWorkspace, {}, nullptr, {}});
    }
    const bool checks = computes_indices(program, kernel);  // so do the others, their code is the same
    if (checks) {
      params.push_back(ptx::ParamType::kWritePointer);
      launch.arguments.push_back({PtxArgument::Kind::kFault, {}, nullptr, {}});
    }
    const size_t first_map = params.size();
    size_t maps = 0;  // of a member
    for (const Kernel *each : draft.maps ? members : std::vector<const Kernel *>()) {
      const std::vector<PtxTensorMap> given = draft.maps(*each);
      maps = given.size();
      for (const PtxTensorMap &map : given) {
        params.push_back(ptx::ParamType::kTensorMap);
        launch.arguments.push_back({PtxArgument::Kind::kTensorMap, map.buffer, nullptr, map});
      }
    }
    launch.workspace_bytes = draft.workspace_bytes;
    for (int axis = 0; axis < 3; ++axis) launch.grid[axis] = draft.grid[axis];
    launch.grid[2] = launch.grid[2] * Dim(static_cast<int64_t>(members.size()));
    launch.threads = draft.threads;

    // What is read is written by a kernel that may still run when this one starts.
    if (chained) invariant = false;
    ptx::Builder builder(module, name, params, draft.threads, chained);
    ptx::KernelContext k{program, builder, {}, {}, nullptr, nullptr, {}, invariant};
    if (draft.workspace_bytes > 0) k.workspace = builder.param(pointers + symbols.size());
    if (checks) k.fault = builder.param(first_map - 1);
    for (size_t i = 0; i < symbols.size(); ++i) k.symbols.emplace_back(symbols[i], builder.param(pointers + i));
    ptx::Value member = nullptr;
    if (members.size() > 1) {
      ptx::Value depth = ptx::Scope(k).index(draft.grid[2]);
      member = builder.div(builder.block(2), depth);
      builder.set_block(2, builder.rem(builder.block(2), depth));
    }
    for (size_t i = 0; i < roots.size(); ++i) {
      ptx::Value pointer = builder.param(i);
      for (size_t m = 1; m < members.size(); ++m)
        pointer = builder.ir.CreateSelect(builder.ir.CreateICmpEQ(member, builder.i32(static_cast<int64_t>(m))),
                                          builder.param(m * roots.size() + i), pointer);
      k.pointers.emplace_back(roots[i], pointer);
    }
    for (size_t i = 0; i < maps; ++i) {
      ptx::Value address = builder.map_address(first_map + i);
      for (size_t m = 1; m < members.size(); ++m)
        address = builder.ir.CreateSelect(builder.ir.CreateICmpEQ(member, builder.i32(static_cast<int64_t>(m))),
                                          builder.map_address(first_map + m * maps + i), address);
      k.maps.push_back(address);
    }
    const Dim blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
    if (draft.early_next || (blocks.is_constant() && blocks.value() <= 16)) builder.let_next_start_early();
    if (!draft.waits) builder.wait_for_kernels_before();
    draft.body(k);
    builder.finish();
    launch.shared_bytes = builder.shared_bytes();

    // Layers of a model repeat kernels: equal code is one entry.
    std::string code;
    llvm::raw_string_ostream stream(code);
    builder.function()->print(stream);
    stream.flush();
    const size_t at = code.find("@" + name + "(");
    code.erase(at, name.size() + 1);
    code += "\n" + std::to_string(draft.threads) + " " + std::to_string(draft.min_blocks);
    auto [it, fresh] = known.emplace(code, std::make_pair(name, launch.shared_bytes));
    launch.function = it->second.first;
    if (!fresh) {
      builder.function()->eraseFromParent();
      return;
    }
    // Marked once all are written: the numbers of metadata are part of a function's text.
    marks.push_back({builder.function(), draft.threads, draft.min_blocks, builder.rolled(), builder.maps()});
  }
};

}  // namespace

}  // namespace optc

extern "C" optc::PtxEmitter *optc_make_ptx_emitter() { return new optc::Emitter(); }
