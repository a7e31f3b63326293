#include "emit/ptx/ptx.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <map>

#include "emit/ptx/launches.h"
#include "emit/ptx/target.h"
#include "ir/program/device_schedule.h"
#include "ir/program/gpu_launch.h"
#include "ir/program/gpu_machine.h"

namespace optc {

namespace {

using ptx::Draft;
using ptx::Launches;
using ptx::Member;

struct Mark {
  llvm::Function *function = nullptr;
  unsigned threads = 0, min_blocks = 0;
  std::vector<llvm::Instruction *> rolled;
  std::vector<unsigned> maps;
};

bool is_scheduled(const Kernel &kernel) {
  return std::holds_alternative<GemmTensorCoreSchedule>(kernel.schedule) ||
         std::holds_alternative<GemmWarpgroupSchedule>(kernel.schedule) ||
         std::holds_alternative<ConvolutionWarpgroupSchedule>(kernel.schedule) ||
         std::holds_alternative<ConvolutionStripsSchedule>(kernel.schedule) ||
         std::holds_alternative<RecurrentStepsSchedule>(kernel.schedule);
}

// What a block may have on every target.
int64_t least_shared_bytes(const std::vector<std::string> &targets) {
  int64_t least = INT64_MAX;
  for (const std::string &target : targets)
    if (const GpuMachine *machine = find_gpu_machine(target)) least = std::min(least, machine->block_shared_bytes);
  return least;
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
    Launches launches;
    std::vector<std::vector<Draft>> &drafts = launches.drafts;
    drafts.resize(program.order.size());
    launches.rows.resize(program.order.size());
    launches.together.resize(program.order.size());
    for (size_t i = 0; i < program.order.size(); ++i) {
      const Kernel &kernel = program.kernel(program.order[i]);
      PtxKernel &out = output.kernels[i];
      out.kernel = program.order[i];
      out.reason = reason_against_gpu(program, kernel);
      if (!out.reason.empty()) continue;
      if (is_scheduled(kernel)) {
        auto draft = ptx::draft_scheduled(program, kernel);
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
    if (!options.watched)
      ptx::keep_rows_in_blocks(program, least_shared_bytes(options.targets), launches, output.kernels);
    const auto code = [&](const Member &member, const Draft &draft) { return code_of(program, member, draft); };
    ptx::join_independent(program, code, launches, output.kernels);
    for (const ptx::Target &target : targets) {
      std::string error;
      auto text = module_text(program, target, launches, output.kernels, &error);
      if (!text) return diagnostics.error(ErrorKind::kInternal, "PTX for " + target.name() + ": " + error);
      output.modules.push_back({target.name(), std::move(*text)});
    }
    return output;
  }

 private:
  // A kernel's code without its name.
  static std::string code_of(const Program &program, const Member &member, const Draft &draft) {
    llvm::LLVMContext context;
    ptx::Machine machine(ptx::Target{90, true});
    auto module = machine.new_module(context, "alone");
    std::map<std::string, std::pair<std::string, unsigned>> known;
    std::vector<Mark> marks;
    PtxLaunch launch;
    write_function(program, {member}, draft, *module, "kernel", true, known, marks, launch);
    return known.begin()->first;
  }

  static std::optional<std::string> module_text(const Program &program, const ptx::Target &target,
                                                const Launches &launches, std::vector<PtxKernel> &kernels,
                                                std::string *error) {
    llvm::LLVMContext context;
    ptx::Machine machine(target);
    auto module = machine.new_module(context, program.name);
    std::map<std::string, std::pair<std::string, unsigned>> known;  // code without its name -> entry, shared bytes
    std::vector<Mark> marks;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (!kernels[i].on_gpu) continue;
      const Kernel &kernel = program.kernel(kernels[i].kernel);
      const std::vector<Draft> &drafts = launches.drafts[i];
      for (size_t j = 0; j < drafts.size(); ++j) {
        const std::string name = kernel.name + (drafts.size() > 1 ? "_" + std::to_string(j) : "");
        std::vector<Member> members{launches.member(program, kernels, i)};
        for (size_t other : launches.together[i]) members.push_back(launches.member(program, kernels, other));
        write_function(program, members, drafts[j], *module, name, target.sm >= 90, known, marks,
                       kernels[i].launches[j]);
      }
    }
    for (const Mark &mark : marks)
      ptx::mark_kernel(*mark.function, mark.threads, mark.min_blocks, mark.rolled, mark.maps);
    return machine.print(*module, error);
  }

  // `members` have equal code; the draft is the first one's. Each has its share of the grid's last dimension.
  static void write_function(const Program &program, const std::vector<Member> &members, const Draft &draft,
                             llvm::Module &module, const std::string &name, bool chained,
                             std::map<std::string, std::pair<std::string, unsigned>> &known, std::vector<Mark> &marks,
                             PtxLaunch &launch) {
    const Kernel &kernel = *members[0].kernel;
    launch.arguments.clear();
    std::vector<ptx::ParamType> params;
    std::vector<BufferId> roots;  // of the first
    bool invariant = true;
    for (const Member &member : members) {
      const std::vector<BufferId> here = ptx::member_roots(program, member);
      const auto written_buffers = writes(program, *member.kernel);
      for (BufferId root : here) {
        bool written = false;
        for (BufferId id : written_buffers)
          written = written || ptx::may_share(program, root, root_of(program, id).buffer);
        for (BufferId id : reads(program, *member.kernel))
          if (written && root_of(program, id).buffer == root) invariant = false;
        const BufferKind kind = program.buffer(root).kind;
        params.push_back(written ? ptx::ParamType::kWritePointer
                         : kind == BufferKind::kConstant || kind == BufferKind::kInput || !chained
                             ? ptx::ParamType::kReadPointer
                             : ptx::ParamType::kSharedPointer);
        launch.arguments.push_back({PtxArgument::Kind::kBuffer, root, nullptr, {}});
      }
      if (&member == &members[0]) roots = here;
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
    for (const Member &each : draft.maps ? members : std::vector<Member>()) {
      const std::vector<PtxTensorMap> given = draft.maps(*each.kernel);
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
