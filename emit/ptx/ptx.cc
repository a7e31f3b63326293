#include "emit/ptx/ptx.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <map>

#include "emit/ptx/draft.h"
#include "emit/ptx/target.h"
#include "ir/program/device_schedule.h"

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
  // An open offset is chosen at run time (runtime/cuda/session.h), apart from all that lives in the same kernel.
  auto open = [](Dim offset) { return offset.is_constant() && offset.value() >= kDimOverflow; };
  if (open(pa->offset) || open(pb->offset)) return false;
  return !(proved_at_least(pa->offset, pb->offset + pb->bytes) || proved_at_least(pb->offset, pa->offset + pa->bytes));
}

// The first reason why a loop nest cannot be a GPU kernel, or "".
std::string reason_against(const Program &program, const Kernel &kernel) {
  if (const LibraryCall *call = kernel.library()) return "library function '" + call->function + "' has no GPU form";
  if (kernel.control()) return "control flow runs on the CPU";
  const LoopNest &nest = *kernel.nest();
  for (const Stage &stage : nest.stages)
    for (const StageOutput &output : stage.outputs)
      for (ScalarId id : {output.value, output.condition, output.initial})
        if (id.valid())
          if (std::string why = ptx::unsupported(program, id); !why.empty()) return why;
  auto all = reads(program, kernel);
  auto written = writes(program, kernel);
  all.insert(all.end(), written.begin(), written.end());
  for (BufferId id : all) {
    const Buffer &buffer = program.buffer(ptx::root_of(program, id).buffer);
    if (!buffer.type.is_tensor()) return "a value that is no tensor";
    Dim count = storage_count(buffer);
    if (count.is_constant() && count.value() >= (int64_t{1} << 31)) return "a tensor of 2^31 elements or more";
  }
  return {};
}

struct Mark {
  llvm::Function *function = nullptr;
  unsigned threads = 0, min_blocks = 0;
};

class Emitter : public PtxEmitter {
 public:
  Result<PtxOutput> emit(const Program &program, const PtxOptions &options, Diagnostics &diagnostics) override {
    std::vector<ptx::Target> targets;
    for (const std::string &name : options.targets) {
      auto target = ptx::parse_target(name);
      if (!target)
        return diagnostics.error(ErrorKind::kUsage, "unknown GPU target '" + name + "'", {},
                                 "known: sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a");
      targets.push_back(*target);
    }
    const ptx::F32Products f32 = options.f32 == "ieee"   ? ptx::F32Products::kIEEE
                                 : options.f32 == "tf32" ? ptx::F32Products::kTF32
                                                         : ptx::F32Products::kThreeTF32;
    PtxOutput output;
    output.llvm_version = ptx::llvm_version();
    output.kernels.resize(program.order.size());
    std::vector<std::vector<Draft>> drafts(program.order.size());
    for (size_t i = 0; i < program.order.size(); ++i) {
      const Kernel &kernel = program.kernel(program.order[i]);
      PtxKernel &out = output.kernels[i];
      out.kernel = program.order[i];
      out.reason = reason_against(program, kernel);
      if (!out.reason.empty()) continue;
      drafts[i] = ptx::draft_attention(program, kernel);
      if (drafts[i].empty()) drafts[i] = ptx::draft_contraction(program, kernel, f32, options);
      if (drafts[i].empty()) drafts[i] = ptx::draft_loops(program, kernel, &out.reason);
      out.on_gpu = out.reason.empty();
      out.launches.resize(drafts[i].size());
      for (const Draft &draft : drafts[i]) out.form += (out.form.empty() ? "" : ", ") + draft.form;
    }
    for (const ptx::Target &target : targets) {
      std::string error;
      auto text = module_text(program, target, drafts, output.kernels, &error);
      if (!text) return diagnostics.error(ErrorKind::kInternal, "PTX for " + target.name() + ": " + error);
      output.modules.push_back({target.name(), std::move(*text)});
    }
    return output;
  }

 private:
  static std::optional<std::string> module_text(const Program &program, const ptx::Target &target,
                                                const std::vector<std::vector<Draft>> &drafts,
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
        write_function(program, kernel, drafts[i][j], *module, name, target.sm >= 90, known, marks,
                       kernels[i].launches[j]);
      }
    }
    for (const Mark &mark : marks) ptx::mark_kernel(*mark.function, mark.threads, mark.min_blocks);
    return machine.print(*module, error);
  }

  static void write_function(const Program &program, const Kernel &kernel, const Draft &draft, llvm::Module &module,
                             const std::string &name, bool chained,
                             std::map<std::string, std::pair<std::string, unsigned>> &known, std::vector<Mark> &marks,
                             PtxLaunch &launch) {
    std::vector<BufferId> roots;
    std::vector<bool> written;
    const auto written_buffers = writes(program, kernel);
    for (const auto &list : {reads(program, kernel), written_buffers})
      for (BufferId id : list) {
        BufferId root = ptx::root_of(program, id).buffer;
        if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
      }
    for (BufferId root : roots) {
      bool any = false;
      for (BufferId id : written_buffers) any = any || may_share(program, root, ptx::root_of(program, id).buffer);
      written.push_back(any);
    }
    launch.arguments.clear();
    std::vector<ptx::ParamType> params;
    bool invariant = true;
    for (size_t i = 0; i < roots.size(); ++i) {
      const BufferKind kind = program.buffer(roots[i]).kind;
      params.push_back(written[i] ? ptx::ParamType::kWritePointer
                       : kind == BufferKind::kConstant || kind == BufferKind::kInput || !chained
                           ? ptx::ParamType::kReadPointer
                           : ptx::ParamType::kSharedPointer);
      launch.arguments.push_back({PtxArgument::Kind::kBuffer, roots[i], nullptr});
    }
    for (BufferId id : reads(program, kernel)) {
      const BufferId root = ptx::root_of(program, id).buffer;
      for (size_t i = 0; i < roots.size(); ++i)
        if (roots[i] == root && written[i]) invariant = false;
    }
    std::vector<const DimSymbol *> symbols;
    for (const SymbolSource &source : program.sources) symbols.push_back(source.symbol);
    for (const DimSymbol *found : data_symbols(program, kernel)) symbols.push_back(found);
    for (const DimSymbol *symbol : symbols) {
      params.push_back(ptx::ParamType::kI32);
      launch.arguments.push_back({PtxArgument::Kind::kSymbol, {}, symbol});
    }
    if (draft.workspace_bytes > 0) {
      params.push_back(ptx::ParamType::kWritePointer);
      launch.arguments.push_back({PtxArgument::Kind::kWorkspace, {}, nullptr});
    }
    launch.workspace_bytes = draft.workspace_bytes;
    for (int axis = 0; axis < 3; ++axis) launch.grid[axis] = draft.grid[axis];
    launch.threads = draft.threads;

    // What is read is written by a kernel that may still run when this one starts.
    if (chained) invariant = false;
    ptx::Builder builder(module, name, params, draft.threads, chained);
    ptx::KernelContext k{program, builder, {}, {}, nullptr, invariant};
    if (draft.workspace_bytes > 0) k.workspace = builder.param(params.size() - 1);
    for (size_t i = 0; i < roots.size(); ++i) k.pointers.emplace_back(roots[i], builder.param(i));
    for (size_t i = 0; i < symbols.size(); ++i) k.symbols.emplace_back(symbols[i], builder.param(roots.size() + i));
    const Dim blocks = draft.grid[0] * draft.grid[1] * draft.grid[2];
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
    marks.push_back({builder.function(), draft.threads, draft.min_blocks});
  }
};

}  // namespace

}  // namespace optc

extern "C" optc::PtxEmitter *optc_make_ptx_emitter() { return new optc::Emitter(); }
