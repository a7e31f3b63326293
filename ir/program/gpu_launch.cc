#include "ir/program/gpu_launch.h"

#include <algorithm>
#include <unordered_map>

#include "ir/program/access.h"
#include "ir/program/device_schedule.h"
#include "ir/program/recurrent.h"

namespace optc {

namespace {

bool has_type(ElementType t) {
  switch (t) {
    case ElementType::kFloat32:
    case ElementType::kFloat64:
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
    case ElementType::kBool:
    case ElementType::kInt8:
    case ElementType::kUInt8:
    case ElementType::kInt16:
    case ElementType::kUInt16:
    case ElementType::kInt32:
    case ElementType::kUInt32:
    case ElementType::kInt64:
    case ElementType::kUInt64:
      return true;
    default:
      return false;
  }
}

// Functions that exist in f32 only.
bool only_f32(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp:
    case ScalarOp::kLog:
    case ScalarOp::kTanh:
    case ScalarOp::kSigmoid:
    case ScalarOp::kPow:
      return false;
    default:
      return is_transcendental(op);
  }
}

struct SupportWalk {
  const Program &program;
  std::unordered_map<uint32_t, bool> seen;
  std::string why;

  void visit_dim(Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) visit(ScalarId(s->scalar));
  }
  void visit(ScalarId id) {
    if (!id.valid() || !why.empty() || !seen.emplace(id.index, true).second) return;
    const Scalar &s = program.scalars.at(id);
    if (!has_type(s.type)) {
      why = "element type " + std::string(to_string(s.type));
      return;
    }
    if (only_f32(s.op) && s.type == ElementType::kFloat64) why = std::string(to_string(s.op)) + " in f64";
    if (s.op == ScalarOp::kIndex) visit_dim(s.index_value);
    for (Dim d : s.index) visit_dim(d);
    for (int i = 0; i < arity(s.op); ++i) visit(s.args[i]);
  }
};

// Why a scalar expression has no GPU form ("" when it has one).
std::string unsupported(const Program &program, ScalarId id) {
  SupportWalk walk{program, {}, {}};
  walk.visit(id);
  return walk.why;
}

}  // namespace

std::vector<const DimSymbol *> launch_symbols(const Program &program, const Kernel &kernel) {
  std::vector<const DimSymbol *> symbols;
  for (const SymbolSource &source : program.sources) symbols.push_back(source.symbol);
  for (const DimSymbol *found : data_symbols(program, kernel)) symbols.push_back(found);
  return symbols;
}

std::vector<BufferId> launch_roots(const Program &program, const Kernel &kernel) {
  std::vector<BufferId> roots;
  // R as ONNX has it: the launch reads what is packed of it.
  const bool packed = std::holds_alternative<RecurrentStepsSchedule>(kernel.schedule);
  const BufferId unpacked = packed ? kernel.library()->inputs[RecurrentSteps::kR] : BufferId();
  for (const auto &list : {reads(program, kernel), writes(program, kernel)})
    for (BufferId id : list) {
      if (id == unpacked) continue;
      const BufferId root = root_of(program, id).buffer;
      if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
    }
  return roots;
}

size_t parameter_bytes(const Program &program, const Kernel &kernel, size_t kernels) {
  const size_t symbols = (4 * launch_symbols(program, kernel).size() + 7) / 8 * 8;
  return 8 * launch_roots(program, kernel).size() * kernels + symbols + 16;
}

std::string reason_against_gpu(const Program &program, const Kernel &kernel) {
  if (kernel.control()) return "control flow runs on the CPU";
  if (const LibraryCall *call = kernel.library()) {
    const std::string none = "library function '" + call->function + "' has no GPU form";
    if (call->function != "rnn_steps") return none;
    if (std::string why = reason_against_steps(program, *call); !why.empty()) return none + ": " + why;
    if (std::holds_alternative<LibrarySchedule>(kernel.schedule)) return "its GPU form is left out";
  } else {
    for (const Stage &stage : kernel.nest()->stages)
      for (const StageOutput &output : stage.outputs)
        for (ScalarId id : {output.value, output.condition, output.initial})
          if (id.valid())
            if (std::string why = unsupported(program, id); !why.empty()) return why;
  }
  auto all = reads(program, kernel);
  auto written = writes(program, kernel);
  all.insert(all.end(), written.begin(), written.end());
  for (BufferId id : all) {
    const Buffer &buffer = program.buffer(root_of(program, id).buffer);
    if (!buffer.type.is_tensor()) return "a value that is no tensor";
    Dim count = storage_count(buffer);
    if (count.is_constant() && count.value() >= (int64_t{1} << 31)) return "a tensor of 2^31 elements or more";
  }
  if (const size_t bytes = parameter_bytes(program, kernel); bytes > kMostParameterBytes)
    return "its tensors and dims take " + std::to_string(bytes) + " bytes of kernel parameters, a launch holds " +
           std::to_string(kMostParameterBytes);
  return {};
}

}  // namespace optc
