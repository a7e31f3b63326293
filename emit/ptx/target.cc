#include "emit/ptx/target.h"

#include <llvm/ADT/SmallString.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Metadata.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <mutex>

#include "ir/program/gpu_machine.h"

namespace optc::ptx {

std::optional<Target> parse_target(std::string_view text) {
  const GpuMachine *machine = find_gpu_machine(text);
  if (!machine) return std::nullopt;
  return Target{machine->capability, machine->specific};
}

namespace {

// LLVM's registries and the short-pointer switch (a command line option of the back end) are global to this module.
void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    auto &options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("nvptx-short-ptr"); it != options.end())
      static_cast<llvm::cl::opt<bool> *>(it->second)->setValue(true);
  });
}

constexpr char kTriple[] = "nvptx64-nvidia-cuda";

}  // namespace

Machine::Machine(Target target) : target_(target) {
  initialize_llvm();
  std::string error;
  const llvm::Target *nvptx = llvm::TargetRegistry::lookupTarget(kTriple, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  machine_.reset(nvptx->createTargetMachine(kTriple, target_.name(), "+ptx80", options, std::nullopt, std::nullopt,
                                            llvm::CodeGenOptLevel::Aggressive));
}

Machine::~Machine() = default;

std::unique_ptr<llvm::Module> Machine::new_module(llvm::LLVMContext &context, const std::string &name) const {
  auto module = std::make_unique<llvm::Module>(name, context);
  module->setTargetTriple(kTriple);
  module->setDataLayout(machine_->createDataLayout());
  return module;
}

std::optional<std::string> Machine::print(llvm::Module &module, std::string *error) const {
  llvm::raw_string_ostream message(*error);
  if (llvm::verifyModule(module, &message)) return std::nullopt;
  {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager graphs;
    llvm::ModuleAnalysisManager modules;
    llvm::PipelineTuningOptions tuning;
    tuning.LoopVectorization = false;
    tuning.SLPVectorization = false;
    llvm::PassBuilder passes(machine_.get(), tuning);
    passes.registerModuleAnalyses(modules);
    passes.registerCGSCCAnalyses(graphs);
    passes.registerFunctionAnalyses(functions);
    passes.registerLoopAnalyses(loops);
    passes.crossRegisterProxies(loops, functions, graphs, modules);
    passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
  }
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager codegen;
  if (machine_->addPassesToEmitFile(codegen, stream, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    message << "this LLVM cannot print PTX";
    return std::nullopt;
  }
  codegen.run(module);
  return std::string(text.str());
}

void mark_kernel(llvm::Function &function, unsigned threads, unsigned min_blocks,
                 const std::vector<llvm::Instruction *> &rolled, const std::vector<unsigned> &maps) {
  llvm::LLVMContext &context = function.getContext();
  llvm::NamedMDNode *list = function.getParent()->getOrInsertNamedMetadata("nvvm.annotations");
  auto number = [&](unsigned value) {
    return llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), value));
  };
  auto text = [&](const char *name) { return llvm::MDString::get(context, name); };
  for (llvm::Instruction *branch : rolled) {
    auto *loop =
        llvm::MDNode::getDistinct(context, {nullptr, llvm::MDNode::get(context, {text("llvm.loop.unroll.disable")})});
    loop->replaceOperandWith(0, loop);
    branch->setMetadata(llvm::LLVMContext::MD_loop, loop);
  }
  auto *self = llvm::ConstantAsMetadata::get(&function);
  std::vector<llvm::Metadata *> marks{
      self, text("kernel"), number(1), text("maxntidx"), number(threads), text("minctasm"), number(min_blocks)};
  if (!maps.empty()) {
    std::vector<llvm::Metadata *> numbers;
    for (unsigned map : maps) numbers.push_back(number(map));
    marks.push_back(text("grid_constant"));
    marks.push_back(llvm::MDNode::get(context, numbers));
  }
  list->addOperand(llvm::MDNode::get(context, marks));
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace optc::ptx
