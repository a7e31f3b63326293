#include "emit/ptx/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/program/gpu_launch.h"
#include "ir/program/uses.h"

namespace optc {

namespace {

std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' ? '_' : c;
  }
  return out + "\"";
}

class Printer {
 public:
  Printer(const Program &program, const PtxOutput &ptx, const std::string &name, bool watched)
      : program_(program), uses_(program), ptx_(ptx), name_(name) {
    for (size_t i = 0; i < program.sources.size(); ++i) symbols_[program.sources[i].symbol] = i;
    std::vector<bool> on_gpu;
    std::vector<std::string> reasons;
    for (const PtxKernel &kernel : ptx.kernels) {
      on_gpu.push_back(kernel.on_gpu);
      reasons.push_back(kernel.reason);
    }
    result_.schedule = plan_devices(program, on_gpu, reasons, watched);
    for (const DimSymbol *found : result_.schedule.data_symbols) symbols_.emplace(found, symbols_.size());
  }

  Result<CudaSource> print(Diagnostics &diagnostics) {
    number_buffers();
    const std::string launches = print_launches(), buffers = print_buffers(), values = print_values();
    std::string out = fmt::format(
        "// {0} on GPUs: buffers, launches in order, and the kernels' PTX.\n#include "
        "\"runtime/cuda/session.h\"\n\nnamespace {0}_code {{\n\n"
        "namespace {{\n\nusing namespace optc::cuda;\n\n",
        name_);
    if (helpers_)
      out +=
          "int64_t floor_div(int64_t a, int64_t b) { return b <= 0 ? 0 : a / b - (a % b < 0); }\n"
          "int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }\n";
    if (least_) out += "int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }\n";
    if (most_) out += "int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }\n";
    if (helpers_ || least_ || most_) out += "\n";
    out += "// Sizes; `s` holds the values of the model's dims";
    for (size_t i = 0; i < program_.sources.size(); ++i)
      out += fmt::format("{} {}: {}", i ? "," : ":", i, program_.sources[i].symbol->name);
    for (const DimSymbol *found : result_.schedule.data_symbols)
      out += fmt::format(", {}: {}", symbols_[found], found->name);
    out += ".\n" + size_text_ + "\n";
    out += "const SymbolTable kSymbols[] = {\n";
    for (const SymbolSource &s : program_.sources)
      out += fmt::format("    {{{}, {}, {}, {}}},\n", quoted(s.symbol->name), s.input, s.axis, s.capacity);
    for (const DimSymbol *found : result_.schedule.data_symbols)
      out += fmt::format("    {{{}, -1, 0, false}},  // found while the model runs\n", quoted(found->name));
    if (symbols_.empty()) out += "    {nullptr, 0, 0, false},\n";
    out += "};\n\n" + buffers + "\n" + launches + "\n" + values + "\n" + print_images();
    out += fmt::format(
        "const ModelTable kModel = {{{}, kSymbols, {}, kBuffers, {}, kLaunches, {}, kSegments, {}, kInputs, {}, "
        "kOutputs, {}, "
        "kImages, {}, "
        "{}u, {}, {}, {}u, {}u, {}, {}}};\n\n}}  // namespace\n\nconst ModelTable &cuda_model();\nconst ModelTable "
        "&cuda_model() {{ "
        "return "
        "kModel; }}\n\n}}  // namespace {}_code\n",
        quoted(name_), symbols_.size(), buffers_.size(), result_.launches, result_.schedule.segments,
        program_.inputs.size(), program_.outputs.size(), ptx_.modules.size(), result_.weights_bytes,
        maps_.empty() ? "nullptr" : "kMaps", maps_.size(), workspace_bytes_ > 0 ? 4 * kWorkspaceCounters : 0,
        workspace_bytes_, program_.states.empty() ? "nullptr" : "kStates", program_.states.size(), name_);
    if (!unplaced_.empty())
      return diagnostics.error(ErrorKind::kInternal,
                               "the buffer '" + unplaced_ + "' has no place in the plan of memory");
    result_.source = std::move(out);
    result_.buffers = buffers_;
    return std::move(result_);
  }

 private:
  void number(BufferId id) {
    if (numbers_.emplace(id.index, buffers_.size()).second) buffers_.push_back(id);
  }
  void number_buffers() {
    for (const PtxKernel &kernel : ptx_.kernels)
      for (const PtxLaunch &launch : kernel.launches)
        for (const PtxArgument &a : launch.arguments) {
          if (a.kind == PtxArgument::Kind::kBuffer || a.kind == PtxArgument::Kind::kTensorMap) number(a.buffer);
        }
    const DeviceSchedule &schedule = result_.schedule;
    for (const auto &copies : schedule.copies)
      for (const DeviceCopy &copy : copies) number(copy.buffer);
    for (const auto &copies : schedule.shown)
      for (const DeviceCopy &copy : copies) number(copy.buffer);
    if (schedule.by_host()) return;  // the host hands out the outputs
    for (BufferId id : program_.outputs) number(uses_.root(id));
  }

  // The text of a dim over the symbols' values `s`.
  std::string text(Dim d) {
    if (d.is_constant()) return std::to_string(d.value());
    std::string out;
    for (const DimTerm &term : d.node()->terms) {
      std::string product;
      for (const DimAtom *a : term.atoms) product += (product.empty() ? "" : " * ") + atom(*a);
      if (term.coefficient != 1) product = std::to_string(term.coefficient) + " * " + product;
      out += (out.empty() ? "" : " + ") + product;
    }
    if (d.node()->constant != 0) out += " + " + std::to_string(d.node()->constant);
    return out;
  }
  std::string atom(const DimAtom &a) {
    const std::string x = a.kind == AtomKind::kSymbol ? "" : text(a.a),
                      y = a.kind == AtomKind::kSymbol ? "" : text(a.b);
    switch (a.kind) {
      case AtomKind::kSymbol: {
        auto it = symbols_.find(a.symbol);
        return it == symbols_.end() ? "0 /* " + a.symbol->name + " */" : fmt::format("s[{}]", it->second);
      }
      case AtomKind::kFloorDiv:
        if (lower_bound(a.a) >= 0 && lower_bound(a.b) >= 1) return fmt::format("(({}) / ({}))", x, y);
        helpers_ = true;
        return fmt::format("floor_div({}, {})", x, y);
      case AtomKind::kMod:
        if (lower_bound(a.a) >= 0 && lower_bound(a.b) >= 1) return fmt::format("(({}) % ({}))", x, y);
        helpers_ = true;
        return fmt::format("floor_mod({}, {})", x, y);
      case AtomKind::kMin:
        least_ = true;
        return fmt::format("least({}, {})", x, y);
      case AtomKind::kMax:
        most_ = true;
        return fmt::format("most({}, {})", x, y);
    }
    return "0";
  }
  // The name of a function that gives the dim.
  std::string size(Dim d) {
    const std::string body = text(d);
    auto it = sizes_.find(body);
    if (it == sizes_.end()) {
      const bool constant = d.is_constant();
      const std::string name = constant ? fmt::format("size_{}{}", d.value() < 0 ? "minus_" : "", std::abs(d.value()))
                                        : fmt::format("size_of_dims_{}", sizes_.size());
      it = sizes_.emplace(body, name).first;
      size_text_ += fmt::format("int64_t {}(const int64_t *{}) {{ return {}; }}\n", name, constant ? "" : "s", body);
    }
    return it->second;
  }

  std::string print_launches() {
    std::string arguments, table;
    std::vector<std::pair<size_t, size_t>> segments(static_cast<size_t>(result_.schedule.segments));
    std::vector<bool> open(segments.size());
    for (size_t position = 0; position < ptx_.kernels.size(); ++position) {
      const PtxKernel &kernel = ptx_.kernels[position];
      const Kernel &k = program_.kernel(kernel.kernel);
      if (kernel.on_gpu) {
        const size_t segment = static_cast<size_t>(result_.schedule.segment[position]);
        if (position == 0 || result_.schedule.segment[position - 1] != result_.schedule.segment[position])
          segments[segment].first = result_.launches;
        segments[segment].second = result_.launches + kernel.launches.size();
        if (!data_symbols(program_, k).empty()) open[segment] = true;
      }
      for (const PtxLaunch &launch : kernel.launches) {
        const size_t index = result_.launches++;
        std::string list;
        for (const PtxArgument &a : launch.arguments) list += (list.empty() ? "" : ", ") + argument(a);
        workspace_bytes_ = std::max(workspace_bytes_, launch.workspace_bytes);
        arguments += fmt::format("const ArgumentTable kArguments{}[] = {{{}}};\n", index, list);
        const bool checks = std::any_of(launch.arguments.begin(), launch.arguments.end(),
                                        [](const PtxArgument &a) { return a.kind == PtxArgument::Kind::kFault; });
        table += fmt::format("    // {}: {}\n    {{{}, {{{}, {}, {}}}, {}, {}, kArguments{}, {}, {}}},\n",
                             k.note.empty() ? k.name : one_line(k.note), kernel.form, quoted(launch.function),
                             size(launch.grid[0]), size(launch.grid[1]), size(launch.grid[2]), launch.threads,
                             launch.shared_bytes, index, launch.arguments.size(), checks ? quoted(k.name) : "nullptr");
      }
    }
    if (table.empty()) table = "    {nullptr, {nullptr, nullptr, nullptr}, 0, 0, nullptr, 0, nullptr},\n";
    table +=
        "};\n\n// Launches between two kernels of the host; true: their sizes may change with every run.\nconst "
        "SegmentTable kSegments[] = {\n";
    for (size_t i = 0; i < segments.size(); ++i)
      table += fmt::format("    {{{}, {}, {}}},\n", segments[i].first, segments[i].second - segments[i].first,
                           open[i] ? "true" : "false");
    if (segments.empty()) table += "    {0, 0, false},\n";
    std::string maps;
    if (!maps_.empty()) maps = map_sizes_ + "const TensorMapTable kMaps[] = {\n" + map_rows_ + "};\n";
    return maps + arguments + "\nconst LaunchTable kLaunches[] = {\n" + table + "};\n";
  }
  std::string argument(const PtxArgument &a) {
    switch (a.kind) {
      case PtxArgument::Kind::kBuffer:
        return fmt::format("{{ArgumentKind::kBuffer, {}}}", numbers_[a.buffer.index]);
      case PtxArgument::Kind::kSymbol:
        return fmt::format("{{ArgumentKind::kSymbol, {}}}", symbols_[a.symbol]);
      case PtxArgument::Kind::kTensorMap:
        return fmt::format("{{ArgumentKind::kTensorMap, {}}}", tensor_map(a.map));
      case PtxArgument::Kind::kFault:
        return "{ArgumentKind::kFault, 0}";
      case PtxArgument::Kind::kUnread:
        return "{ArgumentKind::kUnread, 0}";
      case PtxArgument::Kind::kWorkspace:
        break;
    }
    return "{ArgumentKind::kWorkspace, 0}";
  }

  // Its number in the table; equal ones are one.
  size_t tensor_map(const PtxTensorMap &m) {
    std::string extents, strides, box;
    for (size_t d = 0; d < m.extents.size(); ++d) {
      extents += (d ? ", " : "") + size(m.extents[d]);
      if (d > 0) strides += (d > 1 ? ", " : "") + size(m.byte_strides[d]);
      box += (d ? ", " : "") + std::to_string(m.box[d]);
    }
    std::string walk;
    if (m.walk)
      walk = fmt::format("{{{{{}, {}}}, {{{}, {}}}, {{{}, {}}}}}", m.walk->lower[0], m.walk->lower[1], m.walk->upper[0],
                         m.walk->upper[1], m.walk->steps[0], m.walk->steps[1]);
    const std::string row =
        fmt::format("{}, {}, {}, {}, {{{}}}, {{{}}}, {{{}}}, {}", numbers_[m.buffer.index], static_cast<int>(m.type),
                    m.extents.size(), size(m.byte_offset), extents, strides, box, walk);
    const auto [at, fresh] = maps_.emplace(row, maps_.size());
    if (fresh) {
      map_sizes_ += fmt::format("const Size kMapExtents{0}[] = {{{1}}}, kMapStrides{0}[] = {{{2}}};\n", at->second,
                                extents, strides);
      if (m.walk) map_sizes_ += fmt::format("const WalkTable kMapWalk{} = {};\n", at->second, walk);
      map_rows_ +=
          fmt::format("    {{{}, {}, {}, {}, kMapExtents{}, kMapStrides{}, {{{}}}, {}}},\n", numbers_[m.buffer.index],
                      static_cast<int>(m.type), m.extents.size(), size(m.byte_offset), at->second, at->second, box,
                      m.walk ? fmt::format("&kMapWalk{}", at->second) : "nullptr");
    }
    return at->second;
  }

  static std::string one_line(std::string text) {
    for (char &c : text)
      if (c < ' ' || c == '\\') c = ' ';
    return text;
  }

  std::string print_buffers() {
    std::string table;
    std::map<const void *, uint64_t> known;
    std::unordered_map<uint32_t, const Placement *> places;
    for (const Placement &p : program_.placements) places[p.buffer.index] = &p;
    // What a kernel touches in the launch of another one lives while that runs.
    std::unordered_map<uint32_t, std::pair<size_t, size_t>> joined;
    for (const PtxKernel &k : ptx_.kernels)
      for (size_t at : k.joined)
        for (BufferId id : launch_roots(program_, program_.kernel(k.kernel))) {
          const auto it = joined.emplace(id.index, std::make_pair(at, at)).first;
          it->second = {std::min(it->second.first, at), std::max(it->second.second, at)};
        }
    for (BufferId id : buffers_) {
      const Buffer &b = program_.buffer(id);
      const Dim bytes = storage_bytes(b);
      std::string region = "kArena", offset = "nullptr";
      size_t index = 0, first = 0, last = 0;
      uint64_t weights_offset = 0;
      if (found_at_run_time(bytes)) {
        region = "kGrowing";
      } else if (b.kind == BufferKind::kInput) {
        region = "kInput";
        index = static_cast<size_t>(std::find(program_.inputs.begin(), program_.inputs.end(), id) -
                                    program_.inputs.begin());
      } else if (b.kind == BufferKind::kOutput) {
        region = "kOutput";
        index = static_cast<size_t>(std::find(program_.outputs.begin(), program_.outputs.end(), id) -
                                    program_.outputs.begin());
      } else if (b.kind == BufferKind::kConstant) {
        region = "kWeights";
        auto it = known.find(b.constant.identity());
        if (it == known.end()) {
          it = known.emplace(b.constant.identity(), result_.weights_bytes).first;
          result_.constants.emplace_back(id, result_.weights_bytes);
          result_.weights_bytes = (result_.weights_bytes + b.constant.size() + 255) / 256 * 256;
        }
        weights_offset = it->second;
      } else {
        const auto place = places.find(id.index);
        if (place == places.end()) {
          unplaced_ = b.name;
          continue;
        }
        first = place->second->first;
        last = place->second->last;
        if (const auto it = joined.find(id.index); it != joined.end()) {
          first = std::min(first, it->second.first);
          last = std::max(last, it->second.second);
        }
        // kDimOverflow: some size is symbolic, so the session places all of them
        const Dim at = place->second->offset;
        if (at.is_constant() && at.value() < kDimOverflow) offset = size(at);
      }
      table += fmt::format("    {{{}, Region::{}, {}, {}u, {}, {}, {}, {}}},\n", quoted(b.name), region, index,
                           weights_offset, size(bytes), offset, first, last);
    }
    if (table.empty()) table = "    {nullptr, Region::kArena, 0, 0, nullptr, nullptr, 0, 0},\n";
    return "const BufferTable kBuffers[] = {\n" + table + "};\n";
  }

  std::string print_values() {
    std::string inputs, dims, table;
    for (const BufferId id : program_.inputs) {
      const auto at = numbers_.find(id.index);
      inputs +=
          fmt::format("{}{}", inputs.empty() ? "" : ", ", at == numbers_.end() ? -1 : static_cast<int>(at->second));
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const Buffer &b = program_.buffer(program_.outputs[i]);
      std::string list;
      for (Dim d : b.shape()) list += (list.empty() ? "" : ", ") + size(d);
      dims += fmt::format("const Size kOutputDims{}[] = {{{}}};\n", i, list.empty() ? "nullptr" : list);
      const Dim offset = uses_.byte_offset(program_.outputs[i]);
      const BufferId base = uses_.root(program_.outputs[i]);
      const auto at = numbers_.find(base.index);
      table += fmt::format("    {{{}, {}, {}, kOutputDims{}, {}, {}}},\n",
                           quoted(i < program_.output_names.size() ? program_.output_names[i] : b.name),
                           static_cast<int>(b.element()), b.shape().size(), i,
                           at == numbers_.end() ? -1 : static_cast<int>(at->second), size(offset));
    }
    if (table.empty()) table = "    {nullptr, 0, 0, nullptr, -1, nullptr},\n";
    return fmt::format("// The buffers of the inputs.\nconst int kInputs[] = {{{}}};\n",
                       inputs.empty() ? "-1" : inputs) +
           dims + "const OutputTable kOutputs[] = {\n" + table + "};\n" + print_states();
  }
  std::string print_states() const {
    if (program_.states.empty()) return "";
    std::string table;
    for (const State &s : program_.states) {
      const auto at = numbers_.find(program_.outputs[s.output].index);
      table += fmt::format("    {{{}, {}, {}, {}}},\n", s.input, s.output, s.axis,
                           at == numbers_.end() ? -1 : static_cast<int>(at->second));
    }
    return "// Inputs and outputs that are one memory.\nconst StateTable kStates[] = {\n" + table + "};\n";
  }

  std::string print_images() {
    std::string out, table;
    for (size_t i = 0; i < ptx_.modules.size(); ++i) {
      const PtxModule &m = ptx_.modules[i];
      const bool specific = m.target.back() == 'a';
      out += fmt::format("const char *const kImage{}[] = {{\n", i);
      for (size_t at = 0; at < m.text.size();) {  // compilers limit the length of one literal
        size_t end = std::min(m.text.size(), at + 12000);
        if (end < m.text.size()) end = m.text.rfind('\n', end) + 1;
        out += "    R\"ptx(" + m.text.substr(at, end - at) + ")ptx\",\n";
        at = end;
      }
      out += "    nullptr};\n";
      table += fmt::format("    {{{}, {}, kImage{}}},\n", std::atoi(m.target.c_str() + 3), specific, i);
    }
    return out + "const ImageTable kImages[] = {\n" + table + "};\n\n";
  }

  const Program &program_;
  const Uses uses_;
  const PtxOutput &ptx_;
  std::string name_;
  CudaSource result_;
  std::map<const DimSymbol *, size_t> symbols_;
  std::unordered_map<uint32_t, size_t> numbers_;
  std::vector<BufferId> buffers_;
  std::string unplaced_;  // a buffer of the arena that the Program's plan does not have
  std::unordered_map<std::string, std::string> sizes_;
  std::string size_text_;
  std::map<std::string, size_t> maps_;  // tensor maps by their row
  std::string map_sizes_, map_rows_;
  int64_t workspace_bytes_ = 0;
  bool helpers_ = false, least_ = false, most_ = false;
};

}  // namespace

Result<CudaSource> print_cuda(const Program &program, const PtxOutput &ptx, const std::string &name,
                              Diagnostics &diagnostics, bool watched) {
  const bool any = std::any_of(ptx.kernels.begin(), ptx.kernels.end(), [](const PtxKernel &k) { return k.on_gpu; });
  if (!any && !ptx.kernels.empty()) {
    Diagnostic problem;
    problem.kind = ErrorKind::kUnsupported;
    for (const PtxKernel &kernel : ptx.kernels)
      problem.places.push_back("kernel '" + program.kernel(kernel.kernel).name + "': " + kernel.reason);
    problem.message = "no kernel has a GPU form";
    return diagnostics.add(std::move(problem));
  }
  return Printer(program, ptx, name, watched).print(diagnostics);
}

}  // namespace optc
