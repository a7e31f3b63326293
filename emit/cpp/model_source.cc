// The text of model.cpp around the schedule: what the C ABI tells of the model, the reading of its dims, the memory
// plan.
#include "emit/cpp/model_printer.h"

#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/manifest.h"
#include "emit/cpp/types.h"
#include "ir/dim/range.h"

namespace optc {

void ModelPrinter::print_bind() {
  std::string saved = std::move(body_);
  body_.clear();
  indent_ = 2;
  for (const SymbolSource &s : program_.sources) {
    const std::string field = symbol(*s.symbol);
    if (s.capacity) {
      print_capacity(*s.symbol, field);
      continue;
    }
    line(fmt::format("{} = run.inputs[{}].dims[{}];", field, s.input, s.axis));
    std::string wrong;
    if (s.symbol->min > 0) wrong = fmt::format("{} < {}", field, s.symbol->min);
    if (s.symbol->max < kDimOverflow)
      wrong += fmt::format("{}{} > {}", wrong.empty() ? "" : " || ", field, s.symbol->max);
    if (s.symbol->multiple > 1)
      wrong += fmt::format("{}{} % {} != 0", wrong.empty() ? "" : " || ", field, s.symbol->multiple);
    if (!wrong.empty()) {
      line(fmt::format("if ({})", wrong));
      line(fmt::format(
          "  return run.fail(OPTC_INVALID_ARGUMENT, \"input '%s': dim {} ({}) is %lld, this bundle takes {}\", "
          "inputs[{}].name, static_cast<long long>({}));",
          s.axis, string_literal(s.symbol->name).substr(1, string_literal(s.symbol->name).size() - 2),
          range_text(*s.symbol), s.input, field));
    }
  }
  for (const DimCheck &c : program_.checks) {
    line(fmt::format("if (run.inputs[{}].dims[{}] != {})", c.input, c.axis, dim(c.expected, kAddPrecedence)));
    const std::string expected = string_literal(c.expected.str());
    const char *const constant = c.expected.is_constant() ? "" : " = %lld";
    const std::string number =
        c.expected.is_constant() ? "" : fmt::format(", static_cast<long long>({})", dim(c.expected));
    line("  return run.fail(");
    line(fmt::format("      OPTC_INVALID_ARGUMENT, \"input '%s': dim {} is %lld, expected %s{}\", inputs[{}].name,",
                     c.axis, constant, c.input));
    line(fmt::format("      static_cast<long long>(run.inputs[{}].dims[{}]), {}{});", c.input, c.axis, expected,
                     number));
  }
  // Conditions on dims of inputs alone hold or not before anything runs, wherever it does: a GPU has no step between.
  for (size_t i = 0; i < program_.constraints.size(); ++i) {
    const DimConstraint &c = program_.constraints[i];
    if (!of_inputs(c.left) || !of_inputs(c.right)) continue;
    progress_.constraints_set[i] = true;
    print_condition(c);
  }
  bind_ = std::move(body_);
  body_ = std::move(saved);
  indent_ = 1;
}

// Whether the dim is made of dims of inputs alone, neither of what the model finds nor of the room that states have.
bool ModelPrinter::of_inputs(Dim d) const {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  return std::all_of(symbols.begin(), symbols.end(), [&](const DimSymbol *symbol) {
    return std::any_of(program_.sources.begin(), program_.sources.end(),
                       [&](const SymbolSource &s) { return s.symbol == symbol && !s.capacity; });
  });
}

// The steps that the memory of states has: one number for all that share the symbol.
void ModelPrinter::print_capacity(const DimSymbol &capacity, const std::string &field) {
  const State *first = nullptr;
  for (size_t i = 0; i < program_.states.size(); ++i) {
    const State &state = program_.states[i];
    if (state.capacity != &capacity) continue;
    if (!first) {
      first = &state;
      line(fmt::format("{} = run.capacities[{}];", field, i));
      continue;
    }
    line(fmt::format("if (run.capacities[{}] != {})", i, field));
    line("  return run.fail(OPTC_INVALID_ARGUMENT,");
    line(
        fmt::format("                  \"'%s' has room for %lld steps, '%s' for %lld: they have one length\", "
                    "inputs[{}].name,",
                    state.input));
    line(
        fmt::format("                  static_cast<long long>(run.capacities[{}]), inputs[{}].name, static_cast<long "
                    "long>({}));",
                    i, first->input, field));
  }
}

void ModelPrinter::print_infos() {
  auto infos = [&](const char *label, const std::vector<BufferId> &buffers, const std::vector<std::string> &names) {
    std::string text = fmt::format("  static constexpr optc_value_info {}[] = {{\n", label);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Buffer &b = program_.buffer(buffers[i]);
      std::string dims;
      const size_t rank = b.type.has_shape() ? b.shape().size() : 0;
      for (size_t a = 0; a < rank; ++a) {
        const Dim extent = b.shape()[a];
        if (a) dims += ", ";
        if (extent.is_constant()) {
          dims += fmt::format("{{nullptr, {0}, {0}, {0}}}", extent.value());
        } else {
          const DimSymbol *s = single_symbol(extent);
          const int64_t high = upper_bound(extent);
          dims += fmt::format("{{{}, -1, {}, {}}}", string_literal(s ? s->name : extent.str()),
                              std::max<int64_t>(0, lower_bound(extent)), high >= kDimOverflow ? -1 : high);
        }
      }
      const int kind = b.type.is_tensor()                     ? 0
                       : b.type.kind == Type::Kind::kSequence ? 1
                       : b.type.kind == Type::Kind::kMap      ? 3
                                                              : 2;
      text += fmt::format("      {{{}, {}, {}, {}, {{{}}}}},\n", string_literal(names[i]), kind,
                          static_cast<int>(leaf_element(b.type)), rank, dims);
    }
    if (buffers.empty()) text += "      {nullptr, 0, 0, 0, {}},\n";
    return text + "  };\n";
  };
  infos_ = infos("inputs", program_.inputs, program_.input_names);
  infos_ += infos("outputs", program_.outputs, program_.output_names);
  std::string states;
  for (const State &s : program_.states)
    states += fmt::format("{}{{{}, {}, {}}}", states.empty() ? "" : ", ", s.input, s.output, s.axis);
  infos_ += fmt::format("  static constexpr optc_alias states[] = {{{}}};\n", states.empty() ? "{0, 0, -1}" : states);
  std::string defaults, shapes, strings;
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const Buffer &b = program_.buffer(program_.inputs[i]);
    shapes +=
        fmt::format("{}{}", i ? ", " : "", string_literal(b.type.has_shape() ? shape_text(b.shape()) : "a value"));
    int64_t at = -1;
    std::string texts;
    if (i < program_.input_defaults.size() && program_.input_defaults[i].valid() &&
        b.element() == ElementType::kString) {
      at = 0;
      texts = fmt::format("strings_of_input{}", i);
      infos_ += fmt::format("  static constexpr optc_string {}[] = {{{}}};\n", texts,
                            string_items(program_.input_defaults[i].string_values()));
    } else if (i < program_.input_defaults.size() && program_.input_defaults[i].valid()) {
      at = static_cast<int64_t>(weights_.add(program_.input_defaults[i]));
    }
    defaults += fmt::format("{}{}", i ? ", " : "", at);
    strings += fmt::format("{}{}", i ? ", " : "", texts.empty() ? "nullptr" : texts);
  }
  infos_ += fmt::format("  static constexpr int64_t defaults[] = {{{}}};\n", defaults.empty() ? "-1" : defaults);
  infos_ += fmt::format("  static constexpr const optc_string *default_strings[] = {{{}}};\n",
                        strings.empty() ? "nullptr" : strings);
  infos_ += fmt::format("  static constexpr const char *shapes[] = {{{}}};\n", shapes.empty() ? "\"\"" : shapes);
}

std::string ModelPrinter::guard(const std::vector<SizeRange> &sizes) {
  std::string text;
  for (const SizeRange &range : sizes) {
    const auto source = std::find_if(program_.sources.begin(), program_.sources.end(),
                                     [&](const SymbolSource &s) { return s.symbol->name == range.name; });
    if (source == program_.sources.end()) return "";
    const std::string field = symbol(*source->symbol);
    text += (text.empty() ? "" : " && ") + (range.min == range.max
                                                ? fmt::format("{} == {}", field, range.min)
                                                : fmt::format("{0} >= {1} && {0} <= {2}", field, range.min, range.max));
  }
  return text;
}

ModelSources ModelPrinter::model_sources(const std::string &include_name, const ModelPlaces &places,
                                         const std::vector<ModelEntry> &others) const {
  std::string includes = fmt::format("#include \"kernels.h\"\n#include \"runtime/bundle/model.h\"\n"), structs,
              executes;
  std::string arguments;  // of bundle<>: the entries
  bool library = !library_functions.empty(), objects = uses_objects_, variants = false, mixed = false;
  if (probe_) includes += "#include \"runtime/bundle/probe.h\"\n";
  structs = struct_source("Model", places, "");
  executes = execute_source("Model");
  const std::string space = name_ + "_schedule", open = "namespace " + space + " {\n\n",
                    close = "}  // namespace " + space + "\n";
  for (const ModelEntry &other : others) {
    includes += fmt::format("#include \"{}kernels.h\"\n", other.prefix);
    library = library || !other.printer->library_functions.empty();
    objects = objects || other.printer->uses_objects_;
    variants = variants || !other.sizes.empty();
    mixed = mixed || other.sizes.empty();
    std::string takes;
    if (!other.sizes.empty())
      takes = fmt::format(
          "  static constexpr const char *json_sizes = {};\n  static bool takes(const Model::Dims &d) {{ return {}; "
          "}}\n",
          string_literal(json_string(other.sizes)), other.guard);
    structs += "// " + other.comment + "\n" + other.printer->struct_source(other.title, places, takes);
    arguments += fmt::format(", {}::{}", space, other.title);
  }
  if (library) includes += "#include \"runtime/bundle/library.h\"\n@LIBRARY@";
  if (objects) includes += "#include \"runtime/bundle/objects.h\"\n";
  if (cuda_weights >= 0)
    includes += fmt::format(
        "#include \"runtime/bundle/cuda.h\"\n{}\nnamespace {}_code {{\nconst optc::cuda::ModelTable "
        "&cuda_model();\n}}\n",
        mixed ? "#include \"runtime/bundle/mixed.h\"\n" : "", name_);
  std::string defines = "\n// Where the bundle's files lie, as far as the build says so (CMakeLists.txt does).\n";
  for (const char *place : {"OPTC_BUNDLE_FOLDER", "OPTC_INSTALL_FOLDER", "OPTC_SHARE"})
    defines += fmt::format("#ifndef {0}\n#define {0} nullptr\n#endif\n", place);
  defines += fmt::format(
      "\nextern \"C\" {{\n{1}#undef OPTC_HEADER\n#if defined(__ELF__)\nextern const char *const {0}_header "
      "__attribute__((weak));  // of programs that include {0}.h\n#define OPTC_HEADER &{0}_header\n#else\n#define "
      "OPTC_HEADER nullptr\n#endif\n}}\n",
      include_name, places.declarations);
  std::string entry = fmt::format("\nconst optc_model *{}_model(void) {{ return {}bundle<{}::Model{}>(); }}\n", name_,
                                  cuda_weights >= 0 ? "cuda_" : "", space, arguments);
  if (probe_)
    entry += fmt::format(
        "\nextern \"C\" __attribute__((visibility(\"default\"))) void {0}_set_probe(ProbeFunction function, void "
        "*user);\nvoid {0}_set_probe(ProbeFunction function, void *user) {{\n"
        "  probe_function = function;\n  probe_user = user;\n}}\n",
        name_);
  const std::string what = fmt::format("// {}: the schedule of the model", name_);
  const std::string public_header =
      fmt::format("#define OPTC_BUNDLE_SOURCE  // of the bundle itself\n#include \"{}.h\"\n", include_name);
  ModelSources sources;
  // What the files besides model.cpp hold: parts of long schedules, and those of variants, which compile side by side.
  std::vector<std::string> parts;
  const auto add_parts = [&](const ModelPrinter &printer, const std::string &title) {
    for (size_t i = 0; i < printer.parts_.size() + 1 && !printer.parts_.empty(); ++i)
      parts.push_back(printer.part_source(title, i));
  };
  add_parts(*this, "Model");
  for (const ModelEntry &other : others) {
    add_parts(*other.printer, other.title);
    (other.sizes.empty() ? executes : parts.emplace_back()) += other.printer->execute_source(other.title);
  }
  if (parts.empty()) {
    sources.files.emplace_back("model.cpp", what + " and its part of the C ABI.\n" + public_header + "\n" + includes +
                                                defines + "\nusing namespace optc;\n\n" + open + structs + executes +
                                                close + entry);
    return sources;
  }
  sources.header = what + ": what its parts share.\n#pragma once\n" + public_header + "\n" + includes + defines +
                   "\nusing namespace optc;\n\n" + open + structs + close;
  sources.files.emplace_back(
      "model.cpp", what + " and its part of the C ABI.\n#include \"model.h\"\n\n" + open + executes + close + entry);
  for (size_t i = 0; i < parts.size(); ++i)
    sources.files.emplace_back(fmt::format("model_{}.cpp", i),
                               fmt::format("{}, part {} of {}.\n#include \"model.h\"\n\n", what, i + 1, parts.size()) +
                                   open + parts[i] + close);
  return sources;
}

std::string ModelPrinter::part_head(const std::string &) const {
  std::string out = fmt::format(
      "  [[maybe_unused]] const {0}_code::Kernels &k = {0}_code::kernels();\n  [[maybe_unused]] const Env &env = "
      "run.env;\n  [[maybe_unused]] Dims &d = run.dims;\n",
      name_);
  if (gpu_.schedule) out += "  [[maybe_unused]] cuda::Session &gpu = *static_cast<cuda::Session *>(run.device);\n";
  return out;
}

std::string ModelPrinter::part_source(const std::string &title, size_t part) const {
  const bool last = part == parts_.size();
  return fmt::format("optc_status {0}::execute_{1}(Run<{0}> &run, [[maybe_unused]] State &state) {{\n", title, part) +
         part_head(title) + (last ? declarations_ : parts_[part].declarations) + "\n" +
         (last ? body_ : parts_[part].body) + "  return run.status;\n}\n\n";
}

std::string ModelPrinter::execute_source(const std::string &title) const {
  std::string out = fmt::format("optc_status {0}::execute(Run<{0}> &run) {{\n", title);
  if (parts_.empty()) {
    if (divided_ && !state_.empty()) out += "  State state;\n";
    return out + part_head(title) + declarations_ + "\n" + body_ + "  return run.status;\n}\n\n";
  }
  out += "  State state;\n";
  for (size_t i = 0; i < parts_.size(); ++i)
    out += fmt::format("  if (const optc_status status = execute_{}(run, state)) return status;\n", i);
  return out + fmt::format("  return execute_{}(run, state);\n}}\n\n", parts_.size());
}

std::string ModelPrinter::struct_source(const std::string &title, const ModelPlaces &places,
                                        const std::string &takes) const {
  // Printing dims below only looks up fields that print() made.
  auto *self = const_cast<ModelPrinter *>(this);
  std::string out = "struct " + title + " {\n";
  out += fmt::format(
      "  static constexpr size_t kInputs = {}, kOutputs = {}, kPlaced = {}, kScratch = {}, kGrowing = {}, kKernels = "
      "{}, kStates = {};\n",
      program_.inputs.size(), program_.outputs.size(), placed.size(), row_scratches.size(), grown_.size(),
      step_names_.size(), program_.states.size());
  out += fmt::format("  using Objects = {};\n", uses_objects_ ? "ObjectRegion" : "NoObjects");
  out += infos_;
  out += fmt::format("  static constexpr WeightsSpec weights = {};\n", places.weights);
  out += fmt::format(
      "  static constexpr Places places = {{\"{}\", OPTC_SHARE, OPTC_BUNDLE_FOLDER, OPTC_INSTALL_FOLDER, "
      "OPTC_HEADER}};\n",
      places.name);
  out += fmt::format("  static const char *manifest() {{ return {}; }}\n", places.manifest);
  if (cuda_weights >= 0)
    out += fmt::format(
        "  static constexpr uint64_t kCudaWeights = {}u;\n  static const cuda::ModelTable &cuda() {{ return "
        "{}_code::cuda_model(); }}\n",
        cuda_weights, name_);
  std::string list;
  for (const std::string &f : places_.texts) list += (list.empty() ? "" : ",\n      ") + string_literal(f);
  out += fmt::format("  static constexpr const char *faults[] = {{\n      {}}};\n", list);
  list.clear();
  for (const std::string &s : step_names_) list += (list.empty() ? "" : ",\n      ") + string_literal(s);
  out +=
      fmt::format("  static constexpr const char *kernel_names[] = {{\n      {}}};\n\n", list.empty() ? "\"\"" : list);
  out += "  struct Dims {\n";
  for (const DimSymbol *s : model_symbols_) out += fmt::format("    int64_t {};\n", symbol_fields_.at(s));
  for (const DimSymbol *s : data_symbols_)
    out += fmt::format("    int64_t {};  // found while the model runs\n", symbol_fields_.at(s));
  out += "  };\n";
  out += takes;
  if (probe_) {
    std::string numbers;
    for (const auto *symbols : {&model_symbols_, &data_symbols_})
      for (const DimSymbol *s : *symbols) numbers += (numbers.empty() ? "" : ", ") + std::to_string(s->id);
    out += fmt::format(
        "  static constexpr size_t kProbeDims = {};\n  static constexpr int32_t kProbeSymbols[] = {{{}}};\n",
        model_symbols_.size() + data_symbols_.size(), numbers.empty() ? "0" : numbers);
  }
  out += "\n";
  out += "  // The named dims, read off the inputs, and the conditions on them.\n";
  out += "  static optc_status bind(Run<" + title + "> &run) {\n    [[maybe_unused]] Dims &d = run.dims;\n" + bind_ +
         "    return OPTC_OK;\n  }\n\n";
  out += "  // Dims of the outputs; an upper bound, or -1, where the data decides.\n";
  out += "  static void output_dims([[maybe_unused]] const Dims &d, [[maybe_unused]] optc_value *outputs) {\n";
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Buffer &b = program_.buffer(program_.outputs[i]);
    if (!b.type.has_shape()) continue;
    out += fmt::format("    outputs[{0}].tensor.type = {1};\n    outputs[{0}].tensor.rank = {2};\n", i,
                       static_cast<int>(b.element()), b.shape().size());
    std::string open;  // the axes whose size the data decides
    bool bounded = true;
    for (size_t a = 0; a < b.shape().size(); ++a) {
      const Dim extent = b.shape()[a];
      std::string text;
      if (needs_run_time_size(extent)) {
        const int64_t high = upper_bound(extent);
        text = high >= kDimOverflow ? "-1" : std::to_string(high);
        open += (open.empty() ? "" : ", ") + std::to_string(a);
        bounded = bounded && high < kDimOverflow;
      } else {
        text = self->dim(extent);
      }
      out += fmt::format("    outputs[{}].tensor.dims[{}] = {};\n", i, a, text);
    }
    if (!bounded)
      out += fmt::format("    outputs[{}].tensor.needed_bytes = 0;\n", i);
    else if (open.empty())
      out += fmt::format("    outputs[{0}].tensor.needed_bytes = tensor_bytes({1}, count_of(outputs[{0}].tensor));\n",
                         i, static_cast<int>(b.element()));
    else
      out += fmt::format("    bound_output(outputs[{}].tensor, {{{}}});\n", i, open);
  }
  out += "  }\n\n";
  out += plan_source();
  out += fmt::format("  static optc_status execute(Run<{}> &run);\n", title);
  if (divided_ && (!parts_.empty() || !state_.empty())) {
    out += "  struct State {  // what outlives a part of `execute`\n" + state_ + "  };\n";
    for (size_t i = 0; i <= parts_.size() && !parts_.empty(); ++i)
      out += fmt::format("  static optc_status execute_{}(Run<{}> &run, State &state);\n", i, title);
  }
  out += "};\n\n";
  return out;
}

}  // namespace optc
