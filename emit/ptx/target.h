#pragma once
// The NVPTX side of LLVM: targets, the optimization pipeline, and text out. Only emit/ptx includes this.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llvm {
class Function;
class Instruction;
class LLVMContext;
class Module;
class TargetMachine;
}  // namespace llvm

namespace optc::ptx {

// A GPU architecture, "sm_80" or "sm_90a". `specific` is the trailing 'a': instructions of that architecture alone.
struct Target {
  int sm = 80;
  bool specific = false;
  std::string name() const { return "sm_" + std::to_string(sm) + (specific ? "a" : ""); }
};
// nullopt for anything but the targets of ir/program/gpu_machine.h.
std::optional<Target> parse_target(std::string_view text);

// Owns LLVM's target machine of one architecture. PTX ISA 8.0, short pointers for shared memory, no contraction of
// a*b+c that the IR does not spell as fma, IEEE division and square root, subnormals kept.
class Machine {
 public:
  explicit Machine(Target target);
  ~Machine();
  const Target &target() const { return target_; }
  // An empty module with this machine's triple and data layout.
  std::unique_ptr<llvm::Module> new_module(llvm::LLVMContext &context, const std::string &name) const;
  // Verifies, optimizes (O3) and prints. The same module gives the same bytes. On failure returns nullopt and sets
  // `error`.
  std::optional<std::string> print(llvm::Module &module, std::string *error) const;

 private:
  Target target_;
  std::unique_ptr<llvm::TargetMachine> machine_;
};

// Makes a function a kernel entry of exactly `threads` threads a block (LLVM 19 reads this from !nvvm.annotations;
// string attributes of later versions are ignored by it, hence one place). rolled: branches that end loops which are
// not to be unrolled. maps: parameters, from 1 on, that are read where they lie.
void mark_kernel(llvm::Function &function, unsigned threads, unsigned min_blocks,
                 const std::vector<llvm::Instruction *> &rolled, const std::vector<unsigned> &maps);

std::string llvm_version();

}  // namespace optc::ptx
