// optc inspect MODEL: what a model is: signature, sizes, operators; with --ir its Graph or Program as text.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/common.h"
#include "driver/gpu.h"
#include "emit/cpp/emit.h"
#include "ir/graph/text.h"

namespace optc::cli {
namespace {

nlohmann::ordered_json signature(const Graph &graph, const std::vector<ValueId> &values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const std::vector<ValueId> &inputs = graph.region(Graph::main()).inputs;
  for (const ValueId id : values) {
    list.push_back({{"name", graph.value(id).name}, {"type", to_string(graph.value(id).type)}});
    const auto at = static_cast<size_t>(std::find(inputs.begin(), inputs.end(), id) - inputs.begin());
    if (at < graph.defaults().size() && graph.defaults()[at].valid()) list.back()["default"] = true;
  }
  return list;
}

// Where the kernels of the GPU's Program run: how many, of which forms, and the ones on the CPU with the reason.
struct Placements {
  std::vector<std::string> targets;
  std::map<std::string, int64_t> forms;  // on the GPU
  struct OnCpu {
    std::string kernel, node, reason;
  };
  std::vector<OnCpu> on_cpu;
  int64_t segments = 0, copies = 0;
  std::vector<ScheduleChoice> choices;  // what was weighed for kernels on the GPU
};

Result<std::optional<Placements>> placements(const Graph &graph, const CompileOptions &options, Listener &listener,
                                             Diagnostics &diagnostics) {
  std::optional<Placements> result;
  if (std::none_of(options.targets.begin(), options.targets.end(), is_gpu_target)) return result;
  OPTC_ASSIGN(const Optimized optimized, optimize_model(graph.clone(), options, listener, diagnostics));
  OPTC_ASSIGN(const auto half, gpu_half(optimized.graph, "model", options, listener, diagnostics));
  result.emplace();
  if (!half) return result;
  result->targets = half->targets;
  result->segments = static_cast<int64_t>(half->schedule.segments);
  result->copies = static_cast<int64_t>(half->schedule.copy_count());
  const Program &program = *half->program;
  result->choices = half->choices;
  for (size_t i = 0; i < program.order.size(); ++i) {
    const Kernel &kernel = program.kernel(program.order[i]);
    const std::string &form = half->forms[i];
    if (half->schedule.segment[i] >= 0)
      ++result->forms[form.starts_with("in ") ? "in launches of others" : form.substr(0, form.find(' '))];
    else
      result->on_cpu.push_back(
          {kernel.name, kernel.origin.empty() ? "" : program.origins[kernel.origin[0]].name, half->schedule.reason[i]});
  }
  return result;
}

// One line for all kernels for which the same was weighed: the tile that was taken, its time by the cost model, and
// what came next.
std::string weighed(const std::vector<ScheduleChoice> &choices) {
  std::vector<std::pair<std::string, int64_t>> lines;
  for (const ScheduleChoice &choice : choices) {
    std::string line;
    for (const ScheduleChoice::Way &way : choice.ranked)
      line += fmt::format("{}{} {:.1f}",
                          &way == &choice.ranked[0]   ? ""
                          : &way == &choice.ranked[1] ? "; then "
                                                      : ", ",
                          way.what, way.microseconds);
    auto known = std::find_if(lines.begin(), lines.end(), [&](const auto &l) { return l.first == line; });
    if (known == lines.end())
      lines.emplace_back(line, 1);
    else
      ++known->second;
  }
  std::string text;
  for (const auto &[line, count] : lines)
    text += fmt::format("  {:<10}  {:>3} x {}\n", text.empty() ? "products" : "", count, line);
  return text.empty() ? text
                      : text +
                            "              (tiles m x n x k and their microseconds by the cost model; open sizes weigh "
                            "as 128 and as 1024)\n";
}

std::string to_text(const Placements &p) {
  int64_t count = 0;
  std::string forms;
  for (const auto &[form, n] : p.forms) {
    count += n;
    forms += fmt::format("{}{} {}", forms.empty() ? "" : ", ", n, form);
  }
  std::string text = fmt::format("  placement   {}: {} kernel{} on the GPU{}", fmt::join(p.targets, ", "), count,
                                 count == 1 ? "" : "s", forms.empty() ? "" : " (" + forms + ")");
  text += p.on_cpu.empty()
              ? ", none on the CPU\n"
              : fmt::format(" in {} segments, {} on the CPU, {} copies\n", p.segments, p.on_cpu.size(), p.copies);
  for (const Placements::OnCpu &k : p.on_cpu)
    text += fmt::format("              cpu: {}{}: {}\n", k.kernel, k.node.empty() ? "" : " (node '" + k.node + "')",
                        k.reason);
  return text + weighed(p.choices);
}

std::string step_text(const Program &program, size_t step) {
  return step < program.order.size() ? program.kernel(program.order[step]).name : "the end";
}

nlohmann::ordered_json number_or_null(int64_t n) {
  return n < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(n);
}

void add_memory(const MemoryPlan &plan, nlohmann::ordered_json &json) {
  json["arena_bytes"] = number_or_null(plan.arena_bytes);
  json["lower_bound_bytes"] = number_or_null(plan.lower_bound_bytes);
  json["peak_bytes"] = number_or_null(plan.peak_bytes);
  json["live_bytes"] = nlohmann::ordered_json::array();
  for (const Dim &sum : live_sums(plan)) json["live_bytes"].push_back(sum.str());
  json["buffers"] = nlohmann::ordered_json::array();
  for (const MemoryPlan::Item &i : plan.items)
    json["buffers"].push_back({{"name", i.name},
                               {"bytes", i.bytes.is_constant() ? nlohmann::ordered_json(i.bytes.value())
                                                               : nlohmann::ordered_json(i.bytes.str())},
                               {"each_thread", i.each_thread},
                               {"first", i.first},
                               {"last", i.last},
                               {"offset", number_or_null(i.offset)}});
}

// Sums of bytes as formulas: the shortest few.
std::string live_text(const MemoryPlan &plan) {
  constexpr size_t kShown = 6;
  std::vector<std::string> sums;
  for (const Dim &sum : live_sums(plan)) sums.push_back(sum.str());
  std::stable_sort(sums.begin(), sums.end(), [](const auto &a, const auto &b) { return a.size() < b.size(); });
  std::string text;
  for (size_t i = 0; i < sums.size() && i < kShown; ++i)
    text += fmt::format("  {:<11} {}\n", i == 0 ? "formula" : "", (i == 0 ? "the largest of " : "and ") + sums[i]);
  if (sums.size() > kShown) text += fmt::format("              and {} more sums\n", sums.size() - kShown);
  return text;
}

// On the arena and on threads.
std::string arena_text(const MemoryPlan &plan) {
  if (plan.arena_bytes < 0)
    return fmt::format(
               "  arena       by the dims of a run, in which the {} buffers below are placed; {}\n", plan.items.size(),
               plan.peak_bytes >= 0
                   ? fmt::format("at most {} ({} bytes) for one thread", format_bytes(plan.peak_bytes), plan.peak_bytes)
                   : fmt::format("no bound on '{}' (--dim NAME=MIN..MAX sets one, NAME=N gives numbers)",
                                 fmt::join(plan.open, "', '"))) +
           live_text(plan);
  int64_t each_thread = 0;
  for (const MemoryPlan::Item &i : plan.items)
    if (i.each_thread) each_thread = std::max(each_thread, (i.bytes.value() + 63) / 64 * 64);
  std::string text =
      fmt::format("  arena       {} ({} bytes) for one thread; the most that lives at one time is {}\n",
                  format_bytes(plan.arena_bytes), plan.arena_bytes, format_bytes(plan.lower_bound_bytes));
  if (each_thread > 0)
    text += fmt::format("  threads     each further one takes up to {} more\n", format_bytes(each_thread));
  return text;
}

std::string memory_text(const Program &program, const MemoryPlan &plan) {
  std::string text = arena_text(plan);
  std::vector<const MemoryPlan::Item *> items;
  for (const MemoryPlan::Item &i : plan.items) items.push_back(&i);
  std::stable_sort(items.begin(), items.end(), [](const auto *a, const auto *b) { return a->first < b->first; });
  for (const MemoryPlan::Item *i : items)
    text += fmt::format("  {:>10}  {:>12}  {}{}: {} to {}\n", i->offset >= 0 ? std::to_string(i->offset) : "",
                        i->bytes.str(), i->name, i->each_thread ? " (each thread)" : "", step_text(program, i->first),
                        step_text(program, i->last));
  return text;
}

// The memory of the bundle on the CPU: what lies in the arena, where, and from which kernel to which.
Status print_memory(const Program &program, const CommonOptions &o, const CompileOptions &options, Listener &listener,
                    Diagnostics &diagnostics) {
  OPTC_ASSIGN(const MemoryPlan plan, plan_memory(program, diagnostics));
  nlohmann::ordered_json json = {{"schema_version", 1}, {"model", o.model}};
  add_memory(plan, json);
  std::string text = o.model + "\n" + memory_text(program, plan);
  for (const std::vector<DimPin> &sizes : options.variants) {
    OPTC_ASSIGN(const Program variant, lower_variant(o.model, options, sizes, listener, diagnostics));
    OPTC_ASSIGN(const MemoryPlan own, plan_memory(variant, diagnostics));
    json["variants"].push_back({{"name", describe(sizes)}});
    add_memory(own, json["variants"].back());
    text += "variant " + describe(sizes) + "\n" + memory_text(variant, own);
  }
  print(o.format == "json" ? json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n" : text);
  return {};
}

Status inspect(const CommonOptions &o, const std::string &ir, bool memory, Diagnostics &diagnostics) {
  if (memory && !ir.empty())
    return diagnostics.error(ErrorKind::kUsage, "--ir and --print-memory-plan ask for two different texts");
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  CommonOptions silent = o;
  silent.quiet = true;
  const std::unique_ptr<Listener> listener = make_listener(silent);
  OPTC_ASSIGN(Graph graph, load_model(o.model, options, *listener, diagnostics));
  if (ir == "graph") {
    print(print(graph));
    return {};
  }
  if (!ir.empty() || memory) {
    OPTC_ASSIGN(Optimized optimized, optimize_model(std::move(graph), options, *listener, diagnostics));
    if (ir == "optimized") {
      print(print(optimized.graph));
      return {};
    }
    OPTC_ASSIGN(const Program program, lower_model(optimized.graph, options, *listener, diagnostics));
    if (memory) return print_memory(program, o, options, *listener, diagnostics);
    print(print(program));
    return {};
  }
  struct VariantLine {
    std::string sizes;
    size_t kernels;
    int64_t arena_bytes;
  };
  std::vector<VariantLine> variants;
  for (const std::vector<DimPin> &sizes : options.variants) {
    OPTC_ASSIGN(const Program variant, lower_variant(o.model, options, sizes, *listener, diagnostics));
    OPTC_ASSIGN(const MemoryPlan plan, plan_memory(variant, diagnostics));
    variants.push_back({describe(sizes), variant.order.size(), plan.arena_bytes});
  }
  OPTC_ASSIGN(const std::optional<Placements> placed, placements(graph, options, *listener, diagnostics));
  std::map<std::string, int64_t> by_op;
  for (const NodeId id : graph.all_nodes()) ++by_op[graph.node(id).op];
  std::vector<std::pair<std::string, int64_t>> ops(by_op.begin(), by_op.end());
  std::stable_sort(ops.begin(), ops.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
  const GraphFacts facts = facts_of(graph);
  const Region &main = graph.region(Graph::main());
  if (o.format == "json") {
    nlohmann::ordered_json json = {{"schema_version", 1},
                                   {"model", o.model},
                                   {"producer", graph.info().producer},
                                   {"ir_version", graph.info().ir_version},
                                   {"nodes", facts.nodes},
                                   {"parameters", facts.parameters},
                                   {"parameter_bytes", facts.parameter_bytes},
                                   {"inputs", signature(graph, main.inputs)},
                                   {"outputs", signature(graph, main.outputs)}};
    for (const auto &[domain, version] : graph.info().opset_imports)
      json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
    for (const auto &[op, count] : ops) json["operators"][op] = count;
    for (const VariantLine &v : variants)
      json["variants"].push_back(
          {{"sizes", v.sizes}, {"kernels", v.kernels}, {"arena_bytes", number_or_null(v.arena_bytes)}});
    if (placed) {
      nlohmann::ordered_json on_cpu = nlohmann::ordered_json::array();
      for (const Placements::OnCpu &k : placed->on_cpu)
        on_cpu.push_back({{"kernel", k.kernel}, {"node", k.node}, {"reason", k.reason}});
      nlohmann::ordered_json products = nlohmann::ordered_json::array();
      for (const ScheduleChoice &choice : placed->choices) {
        nlohmann::ordered_json ways = nlohmann::ordered_json::array();
        for (const ScheduleChoice::Way &way : choice.ranked)
          ways.push_back({{"way", way.what}, {"microseconds", std::round(way.microseconds * 100) / 100}});
        products.push_back({{"kernel", choice.kernel}, {"modelled", ways}});
      }
      json["gpu"] = {{"targets", placed->targets}, {"forms", placed->forms}, {"segments", placed->segments},
                     {"copies", placed->copies},   {"on_cpu", on_cpu},       {"products", products}};
    }
    print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    return {};
  }
  std::string text = fmt::format("{}\n", o.model);
  std::string opsets;
  for (const auto &[domain, version] : graph.info().opset_imports)
    opsets += fmt::format("{}{} {}", opsets.empty() ? "" : ", ", domain.empty() ? "ai.onnx" : domain, version);
  text += fmt::format("  format      IR {}, {}{}\n", graph.info().ir_version, opsets,
                      graph.info().producer.empty()
                          ? ""
                          : fmt::format(", by {} {}", graph.info().producer, graph.info().producer_version));
  text += fmt::format("  size        {} nodes, {} parameters ({})\n", facts.nodes, format_count(facts.parameters),
                      format_bytes(facts.parameter_bytes));
  for (size_t i = 0; i < main.inputs.size(); ++i) {
    const Value &input = graph.value(main.inputs[i]);
    const bool optional = i < graph.defaults().size() && graph.defaults()[i].valid();
    text +=
        fmt::format("  input       {}: {}{}\n", input.name, to_string(input.type), optional ? ", with a default" : "");
  }
  for (const ValueId id : main.outputs)
    text += fmt::format("  output      {}: {}\n", graph.value(id).name, to_string(graph.value(id).type));
  for (const VariantLine &v : variants)
    text += fmt::format("  variant     {}: {} kernel{}, {}\n", v.sizes, v.kernels, v.kernels == 1 ? "" : "s",
                        v.arena_bytes < 0 ? "arena by the dims" : "arena " + format_bytes(v.arena_bytes));
  text += "  operators   ";
  for (size_t i = 0; i < ops.size(); ++i)
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : (i % 8 == 0 ? ",\n              " : ", "), ops[i].second, ops[i].first);
  print(text + "\n" + (placed ? to_text(*placed) : ""));
  return {};
}

}  // namespace

void add_inspect(CommandLine &line, int &code) {
  struct Options : CommonOptions {
    std::string ir;
    bool memory = false;
  };
  auto o = std::make_shared<Options>();
  Verb *verb = line.add_verb("inspect", "what a model is: signature, sizes, operators");
  verb->footer("Example: optc inspect model.onnx --ir optimized");
  add_model(*verb, *o);
  verb->add_option("--ir", o->ir, "print the text form instead: graph (as imported), optimized, or program")
      ->one_of({"graph", "optimized", "program"})
      ->type_name("STAGE");
  verb->add_flag("--print-memory-plan", o->memory,
                 "print instead what lies in the bundle's arena, where, and from which kernel to which");
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return inspect(*o, o->ir, o->memory, diagnostics); });
}

}  // namespace optc::cli
