#include "emit/cpp/manifest.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

namespace optc {
namespace {

using Json = nlohmann::ordered_json;

Json dim_json(Dim d) { return d.is_constant() ? Json(d.value()) : Json(d.str()); }

Json values(const Program &program, const std::vector<BufferId> &buffers, const std::vector<std::string> &names) {
  Json list = Json::array();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Type &type = program.buffer(buffers[i]).type;
    Json item = {{"name", names[i]}};
    if (type.has_shape()) {
      item["type"] = std::string(onnx_name(type.element));
      item["dims"] = Json::array();
      for (const Dim &d : *type.shape) item["dims"].push_back(dim_json(d));
    } else {
      item["type"] = to_string(type);
    }
    list.push_back(std::move(item));
  }
  return list;
}

using ChoicesByKernel = std::unordered_map<std::string_view, const ScheduleChoice *>;

ChoicesByKernel by_kernel(const std::vector<ScheduleChoice> &choices) {
  ChoicesByKernel map;
  for (const ScheduleChoice &choice : choices) map.emplace(choice.kernel, &choice);
  return map;
}

// Of a bundle that was made with a tuning cache: who chose, and among what.
void add_choice(const ChoicesByKernel &choices, const std::string &kernel, Json &item) {
  const auto at = choices.find(kernel);
  if (at == choices.end() || at->second->form.empty()) return;
  item["choice"] = {{"by", at->second->measured ? "measurement" : "model"}, {"form", at->second->form}};
  for (const ScheduleChoice::Way &way : at->second->ranked) item["choice"]["ways"].push_back(way.what);
}

void add_kernels(const Program &program, const std::vector<KernelId> &order, const ChoicesByKernel &choices,
                 Json &list) {
  for (KernelId id : order) {
    const Kernel &kernel = program.kernel(id);
    if (const ControlFlow *control = kernel.control()) {
      for (const auto &body : control->bodies) add_kernels(program, body, choices, list);
      continue;
    }
    Json item = {{"name", kernel.name}, {"note", kernel.note}, {"placement", "cpu"}};
    item["strategy"] = kernel.library()                ? "library." + kernel.library()->function
                       : name(kernel.schedule).empty() ? "loops"
                                                       : name(kernel.schedule);
    if (!is_plain(kernel.schedule)) item["schedule"] = print(program, kernel.schedule);
    add_choice(choices, kernel.name, item);
    item["origin"] = Json::array();
    for (uint32_t o : kernel.origin)
      item["origin"].push_back(
          {{"node", program.origins[o].name}, {"op", program.origins[o].op}, {"index", program.origins[o].index}});
    if (!kernel.rules.empty()) item["rules"] = kernel.rules;
    item["cost"] = {{"bytes_read", dim_json(kernel.cost.bytes_read)},
                    {"bytes_written", dim_json(kernel.cost.bytes_written)},
                    {"flops", dim_json(kernel.cost.flops)}};
    list.push_back(std::move(item));
  }
}

// The arena of an entry and what lies in it.
void add_memory(const Program &program, const ModelPrinter &model, Json &j) {
  j["arena_bytes"] = model.arena_bytes >= 0 ? Json(model.arena_bytes) : Json(nullptr);
  j["lower_bound_bytes"] = model.lower_bound_bytes >= 0 ? Json(model.lower_bound_bytes) : Json(nullptr);
  const MemoryPlan plan = model.memory_plan();
  j["peak_bytes"] = plan.peak_bytes >= 0 ? Json(plan.peak_bytes) : Json(nullptr);
  j["buffers"] = Json::array();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const MemoryPlan::Item &item = plan.items[i];
    Json buffer = {{"name", item.name}};
    if (i < model.placed.size())
      buffer["type"] = std::string(to_string(program.buffer(model.placed[i].buffer).element()));
    buffer["bytes"] = dim_json(item.bytes);
    if (item.each_thread) buffer["each_thread"] = true;
    buffer["first"] = item.first;
    buffer["last"] = item.last;
    buffer["offset"] = item.offset >= 0 ? Json(item.offset) : Json(nullptr);
    j["buffers"].push_back(std::move(buffer));
  }
}

}  // namespace

std::string json_string(const std::string &text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string weights_json(const QuantizedWeights &weights) {
  Json j = {{"format", weights.format},
            {"cost", weights.cost},
            {"activations", weights.activations},
            {"weights", Json::array()},
            {"kept", Json::array()}};
  for (const QuantizedWeights::Weight &w : weights.weights) {
    if (w.stored.empty())
      j["kept"].push_back({{"name", w.name}, {"why", w.kept}, {"bytes", w.bytes_before}});
    else
      j["weights"].push_back(
          {{"name", w.name}, {"stored", w.stored}, {"bytes_before", w.bytes_before}, {"bytes", w.bytes}});
  }
  return j.dump();
}

std::string manifest_json(const Program &program, const ModelPrinter &model, const BundleOptions &options,
                          const std::string &name, const WeightsFacts &weights,
                          const std::vector<VariantFacts> &variants) {
  Json j;
  j["schema_version"] = 1;
  j["name"] = name;
  j["compiler"] = options.compiler;
  j["model"] = {{"name", program.info.name},
                {"xxh3_128", program.info.source_hash},
                {"producer", program.info.producer},
                {"ir_version", program.info.ir_version}};
  for (const auto &[domain, version] : program.info.opset_imports)
    j["model"]["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  for (const auto &[key, value] : program.info.metadata) j["model"]["metadata"][key] = value;
  j["targets"] = {"cpu"};
  if (options.cuda)
    for (const std::string &target : options.cuda->targets) j["targets"].push_back(target);
  j["precision"] = options.precision;
  if (!options.weights_quantized.format.empty())
    j["quantized_weights"] = Json::parse(weights_json(options.weights_quantized));
  j["inputs"] = values(program, program.inputs, program.input_names);
  j["outputs"] = values(program, program.outputs, program.output_names);
  for (const State &state : program.states) {
    Json item = {{"input", program.input_names[state.input]},
                 {"output", program.output_names[state.output]},
                 {"in_place", state.in_place}};
    if (state.axis >= 0) item["axis"] = state.axis, item["capacity"] = state.capacity->name;
    j["states"].push_back(std::move(item));
  }
  j["weights"] = {{"bytes", weights.bytes},
                  {"xxh3_128", weights.hash},
                  {"storage", options.weights == BundleOptions::Weights::kFile    ? "file"
                              : options.weights == BundleOptions::Weights::kEmbed ? "embedded"
                                                                                  : "stripped"}};
  add_memory(program, model, j);
  j["passes"] = options.passes;
  j["kernels"] = Json::array();
  add_kernels(program, program.order, by_kernel(options.choices), j["kernels"]);
  for (size_t i = 0; i < variants.size(); ++i) {
    Json variant = {{"name", variants[i].sizes}, {"sizes", Json::object()}};
    for (const SizeRange &range : options.variants[i].sizes)
      variant["sizes"][range.name] = range.min == range.max ? Json(range.min) : Json({range.min, range.max});
    add_memory(*variants[i].program, *variants[i].printer, variant);
    variant["kernels"] = Json::array();
    add_kernels(*variants[i].program, variants[i].program->order, by_kernel(options.variants[i].choices),
                variant["kernels"]);
    j["variants"].push_back(std::move(variant));
  }
  if (options.cuda && options.cuda->program) {
    // The GPU's Program: where each kernel runs and why, and what crosses between the two memories.
    const BundleCuda &cuda = *options.cuda;
    const DeviceSchedule &schedule = cuda.schedule;
    Json gpu = {{"segments", schedule.segments}};
    const ChoicesByKernel choices = by_kernel(cuda.choices);
    gpu["kernels"] = Json::array();
    gpu["copies"] = Json::array();
    for (size_t i = 0; i <= cuda.program->order.size(); ++i) {
      const bool end = i == cuda.program->order.size();
      const std::string name = end ? "" : cuda.program->kernel(cuda.program->order[i]).name;
      for (const DeviceCopy &copy : schedule.copies[i]) {
        const Buffer &b = cuda.program->buffer(copy.buffer);
        gpu["copies"].push_back({{"buffer", b.name},
                                 {"to", copy.to_device ? "gpu" : "cpu"},
                                 {"before", end ? Json(nullptr) : Json(name)},
                                 {"bytes", dim_json(storage_bytes(b))}});
      }
      if (end) break;
      Json item = {{"name", name}, {"placement", schedule.segment[i] >= 0 ? "gpu" : "cpu"}};
      if (schedule.segment[i] >= 0) {
        item["segment"] = schedule.segment[i];
        item["form"] = cuda.forms[i];
        // By the cost model, alone in its launch.
        add_choice(choices, name, item);
        if (const auto weighed = choices.find(name); weighed != choices.end())
          for (const ScheduleChoice::Way &way : weighed->second->ranked)
            item["modelled"].push_back({{"way", way.what}, {"microseconds", std::round(way.microseconds * 100) / 100}});
      } else {
        item["reason"] = schedule.reason[i];
      }
      gpu["kernels"].push_back(std::move(item));
    }
    if (!schedule.by_host()) gpu["copies"] = Json::array();  // inputs and outputs alone
    j["gpu"] = std::move(gpu);
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace optc
