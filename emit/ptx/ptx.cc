#include "emit/ptx/ptx.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Local.h>

#include <algorithm>
#include <array>
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

// A draft and the kernels of equal code that it works for (the draft is the first one's). A launch has one or several.
struct Part {
  std::vector<Member> members;
  const Draft *draft = nullptr;
};

// Where a part's arguments stand among those of its launch.
struct Given {
  std::vector<BufferId> roots;  // of the first member
  std::vector<const DimSymbol *> symbols;
  size_t first = 0, first_symbol = 0, first_map = 0, maps = 0;  // maps: of one member
  std::optional<size_t> workspace, fault;
  bool invariant = true;
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
    Launches launches(program.order.size());
    std::vector<std::vector<Draft>> &drafts = launches.drafts;
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
    const auto code = [&](const Member &member, const Draft &draft) { return code_of(program, member, draft); };
    if (!options.watched) ptx::pair_products(program, launches, output.kernels);
    ptx::join_independent(program, code, launches, output.kernels);
    ptx::join_beside(program, launches, output.kernels);
    if (!options.watched)
      ptx::keep_rows_in_blocks(program, least_shared_bytes(options.targets), launches, output.kernels);
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
    write_function(program, {{{member}, &draft}}, *module, "kernel", true, known, marks, launch);
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
      if (!kernels[i].on_gpu || launches.launch[i] != i) continue;
      const Kernel &kernel = program.kernel(kernels[i].kernel);
      const std::vector<Draft> &drafts = launches.drafts[i];
      for (size_t j = 0; j < drafts.size(); ++j) {
        const std::string name = kernel.name + (drafts.size() > 1 ? "_" + std::to_string(j) : "");
        std::vector<Part> parts{{launches.members(program, kernels, i), &drafts[j]}};
        for (size_t other : launches.beside[i])
          parts.push_back({launches.members(program, kernels, other), &launches.drafts[other][0]});
        write_function(program, parts, *module, name, target.sm >= 90, known, marks, kernels[i].launches[j]);
      }
    }
    for (const Mark &mark : marks)
      ptx::mark_kernel(*mark.function, mark.threads, mark.min_blocks, mark.rolled, mark.maps);
    return machine.print(*module, error);
  }

  // The parameters of a part, in the launch's order: pointers of each member, then what all of them share.
  static Given give(const Program &program, const Part &part, bool chained, std::vector<ptx::ParamType> &params,
                    std::vector<PtxArgument> &arguments) {
    const Draft &draft = *part.draft;
    const Kernel &kernel = *part.members[0].kernel;
    Given given;
    given.first = params.size();
    for (const Member &member : part.members) {
      const std::vector<BufferId> here = ptx::member_roots(program, member);
      const auto written_buffers = writes(program, *member.kernel);
      for (BufferId root : here) {
        bool written = false;
        for (BufferId id : written_buffers)
          written = written || ptx::may_share(program, root, root_of(program, id).buffer);
        for (BufferId id : reads(program, *member.kernel))
          if (written && root_of(program, id).buffer == root) given.invariant = false;
        const BufferKind kind = program.buffer(root).kind;
        params.push_back(written ? ptx::ParamType::kWritePointer
                         : kind == BufferKind::kConstant || kind == BufferKind::kInput || !chained
                             ? ptx::ParamType::kReadPointer
                             : ptx::ParamType::kSharedPointer);
        arguments.push_back({PtxArgument::Kind::kBuffer, root, nullptr, {}});
      }
      if (&member == &part.members[0]) given.roots = here;
    }
    given.symbols = launch_symbols(program, kernel);
    given.first_symbol = params.size();
    for (const DimSymbol *symbol : given.symbols) {
      params.push_back(ptx::ParamType::kI32);
      arguments.push_back({PtxArgument::Kind::kSymbol, {}, symbol, {}});
    }
    if (draft.workspace_bytes > 0) {
      given.workspace = params.size();
      params.push_back(ptx::ParamType::kWritePointer);
      arguments.push_back({PtxArgument::Kind::kWorkspace, {}, nullptr, {}});
    }
    if (computes_indices(program, kernel)) {  // so do the others, their code is the same
      given.fault = params.size();
      params.push_back(ptx::ParamType::kWritePointer);
      arguments.push_back({PtxArgument::Kind::kFault, {}, nullptr, {}});
    }
    given.first_map = params.size();
    for (const Member &each : draft.maps ? part.members : std::vector<Member>()) {
      const std::vector<PtxTensorMap> maps = draft.maps(*each.kernel);
      given.maps = maps.size();
      for (const PtxTensorMap &map : maps) {
        params.push_back(ptx::ParamType::kTensorMap);
        arguments.push_back({PtxArgument::Kind::kTensorMap, map.buffer, nullptr, map});
      }
    }
    // What is read is written by a kernel that may still run when this one starts.
    if (chained) given.invariant = false;
    return given;
  }

  // The grid of a part alone: each member has its share of the last dimension.
  static std::array<Dim, 3> grid_of(const Part &part) {
    const Draft &draft = *part.draft;
    return {draft.grid[0], draft.grid[1], draft.grid[2] * Dim(static_cast<int64_t>(part.members.size()))};
  }

  // A part's code, in its own blocks.
  static void write_part(const Part &part, const Given &given, ptx::Builder &builder, ptx::KernelContext &k) {
    const Draft &draft = *part.draft;
    const size_t count = part.members.size();
    ptx::Value member = nullptr;
    if (count > 1) {
      ptx::Value depth = ptx::Scope(k).index(draft.grid[2]);
      member = builder.div(builder.block(2), depth);
      builder.set_block(2, builder.rem(builder.block(2), depth));
    }
    const auto of_member = [&](const std::function<ptx::Value(size_t)> &of) {
      ptx::Value chosen = of(0);
      for (size_t m = 1; m < count; ++m)
        chosen = builder.ir.CreateSelect(builder.ir.CreateICmpEQ(member, builder.i32(static_cast<int64_t>(m))), of(m),
                                         chosen);
      return chosen;
    };
    for (size_t i = 0; i < given.roots.size(); ++i)
      k.pointers.emplace_back(
          given.roots[i], of_member([&](size_t m) { return builder.param(given.first + m * given.roots.size() + i); }));
    for (size_t i = 0; i < given.maps; ++i)
      k.maps.push_back(of_member([&](size_t m) { return builder.map_address(given.first_map + m * given.maps + i); }));
    if (!draft.waits) builder.wait_for_kernels_before();
    draft.body(k);
    builder.free_shared(0);
  }

  // The parts one after the other in a row of blocks, each by itself.
  static void write_parts(const std::vector<Part> &parts, const std::vector<Given> &given, ptx::Builder &builder,
                          std::vector<ptx::KernelContext> &contexts, size_t at, ptx::Value first) {
    if (parts.size() == 1) return write_part(parts[0], given[0], builder, contexts[0]);
    const std::array<Dim, 3> grid = grid_of(parts[at]);
    ptx::Scope scope(contexts[at]);
    ptx::Value block = builder.block(0), x = scope.index(grid[0]), y = scope.index(grid[1]),
               end = builder.add(first, scope.index(grid[0] * grid[1] * grid[2]));
    const auto write_this = [&] {
      ptx::Value mine = builder.sub(block, first), row = builder.div(mine, x);
      builder.set_block(0, builder.rem(mine, x));
      builder.set_block(1, builder.rem(row, y));
      builder.set_block(2, builder.div(row, y));
      write_part(parts[at], given[at], builder, contexts[at]);
      builder.set_block(0, block);
      return ptx::Values{};
    };
    if (at + 1 == parts.size()) {
      write_this();
      return;
    }
    builder.either(builder.lt(block, end), write_this, [&] {
      write_parts(parts, given, builder, contexts, at + 1, end);
      return ptx::Values{};
    });
  }

  // Symbols that the code does not read are no arguments of the launch: it stays as it is when they change.
  static void drop_unread(llvm::Function &function, std::vector<PtxArgument> &arguments) {
    for (bool any = true; any;) {
      any = false;
      for (llvm::BasicBlock &block : llvm::reverse(function))
        for (llvm::Instruction &i : llvm::make_early_inc_range(llvm::reverse(block)))
          if (llvm::isInstructionTriviallyDead(&i)) {
            i.eraseFromParent();
            any = true;
          }
    }
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].kind == PtxArgument::Kind::kSymbol && function.getArg(static_cast<unsigned>(i))->use_empty())
        arguments[i] = {PtxArgument::Kind::kUnread, {}, nullptr, {}};
  }

  static void write_function(const Program &program, const std::vector<Part> &parts, llvm::Module &module,
                             const std::string &name, bool chained,
                             std::map<std::string, std::pair<std::string, unsigned>> &known, std::vector<Mark> &marks,
                             PtxLaunch &launch) {
    const Draft &draft = *parts[0].draft;  // threads and registers are the same for all
    launch.arguments.clear();
    std::vector<ptx::ParamType> params;
    std::vector<Given> given;
    Dim blocks = 0;
    bool early = true;
    for (const Part &part : parts) {
      given.push_back(give(program, part, chained, params, launch.arguments));
      const std::array<Dim, 3> grid = grid_of(part);
      blocks = blocks + grid[0] * grid[1] * grid[2];
      early = early && part.draft->early_next;
    }
    launch.workspace_bytes = draft.workspace_bytes;  // no part has any where there are several
    launch.threads = draft.threads;
    const std::array<Dim, 3> alone = grid_of(parts[0]);
    for (size_t axis = 0; axis < 3; ++axis)
      launch.grid[axis] = parts.size() == 1 ? alone[axis] : axis == 0 ? blocks : Dim(1);

    ptx::Builder builder(module, name, params, draft.threads, chained);
    std::vector<ptx::KernelContext> contexts;
    for (const Given &g : given) {
      contexts.push_back({program, builder, {}, {}, nullptr, nullptr, {}, g.invariant});
      ptx::KernelContext &k = contexts.back();
      if (g.workspace) k.workspace = builder.param(*g.workspace);
      if (g.fault) k.fault = builder.param(*g.fault);
      for (size_t i = 0; i < g.symbols.size(); ++i)
        k.symbols.emplace_back(g.symbols[i], builder.param(g.first_symbol + i));
    }
    if (early || (blocks.is_constant() && blocks.value() <= 16)) builder.let_next_start_early();
    write_parts(parts, given, builder, contexts, 0, builder.i32(0));
    builder.finish();
    drop_unread(*builder.function(), launch.arguments);
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
