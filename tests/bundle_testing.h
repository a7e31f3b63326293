#pragma once
// Compiles a graph into a bundle, builds the bundle with a compiler of this machine, loads it and runs it through the C
// ABI.

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "emit/cpp/emit.h"
#include "evaluate/evaluate.h"
#include "ir/graph/text.h"
#include "lowering/buffers/buffers.h"
#include "ops/build.h"
#include "ops/registry.h"
#include "runtime/optc.h"
#include "support/staging.h"

namespace optc::testing {

inline std::string messages(const Diagnostics &diagnostics) {
  std::string all;
  for (const Diagnostic &d : diagnostics.all()) all += format(d);
  return all;
}

inline Result<Program> program_of(const std::string &text, Diagnostics &diagnostics) {
  OPTC_ASSIGN(Graph graph, parse_graph(text, diagnostics));
  OPTC_TRY(infer_graph(graph, diagnostics));
  return build_program(graph, diagnostics);
}

class BuiltBundle {
 public:
  BuiltBundle() = default;
  BuiltBundle(const BuiltBundle &) = delete;
  BuiltBundle &operator=(const BuiltBundle &) = delete;
  ~BuiltBundle() {
    if (context_) model_->api->context_destroy(context_);
    if (library_) dlclose(library_);
    if (!folder_.empty() && !getenv("OPTC_KEEP_BUNDLES")) {
      std::error_code ignored;
      std::filesystem::remove_all(folder_, ignored);
    }
  }

  // Emits and builds; an empty string when all went well. `before_build` may change the files in the folder it is
  // given.
  std::string make(const Program &program, BundleOptions options, const std::string &compiler = "g++",
                   const std::string &flags = "-O1",
                   const std::function<void(const std::string &bundle)> &before_build = {}) {
    char pattern[] = "/tmp/optc_bundle_XXXXXX";
    if (!mkdtemp(pattern)) return "no temporary folder";
    folder_ = pattern;
    Diagnostics diagnostics;
    if (options.name.empty()) options.name = "m";
    options.runtime_folder = std::string(OPTC_SOURCE_DIR) + "/runtime";
    options.compiler = "optc";
    auto directory = StagedDirectory::create(folder_ + "/bundle", diagnostics);
    if (!directory.ok()) return messages(diagnostics);
    Program placed = program;  // those of the tests are not all lowered
    if (placed.placements.empty()) place_buffers(placed);
    if (!emit_bundle(placed, options, **directory, diagnostics).ok()) return messages(diagnostics);
    if (!(*directory)->commit(diagnostics).ok()) return messages(diagnostics);
    if (before_build) before_build(bundle());
    const std::string library = folder_ + "/lib" + options.name + ".so";
    const std::string command =
        "cd " + bundle() + " && " + compiler + " -std=c++17 " + flags +
        " -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC -shared -Wall -Wextra -Werror -Iinclude -Isrc"
        " -DOPTC_BUNDLE_FOLDER='\"" +
        bundle() + "\"' src/*.cpp -o " + library + " -ldl -lpthread > " + folder_ + "/log 2>&1";
    library_path_ = library;
    if (std::system(command.c_str()) != 0)
      return "the bundle does not build:\n" + text_of(folder_ + "/log").substr(0, 6000);
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) return dlerror();
    auto entry = reinterpret_cast<const optc_model *(*)()>(dlsym(library_, (options.name + "_model").c_str()));
    if (!entry) return "no entry";
    model_ = entry();
    optc_options run_options{};
    run_options.struct_size = sizeof run_options;
    run_options.threads = 2;
    run_options.check_weights = 1;
    if (model_->api->context_create(nullptr, &run_options, &context_) != OPTC_OK)
      return model_->api->last_error(nullptr);
    return "";
  }

  // Runs on tensors; outputs get 64 KB beyond what output_dims says. An empty string when the status is OPTC_OK.
  std::string run(const std::vector<Constant> &inputs, std::vector<Constant> &outputs) {
    const optc_api &api = *model_->api;
    std::vector<optc_value> in(inputs.size() + 1), out(api.output_count() + 1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      optc_tensor &t = in[i].tensor;
      t.data = const_cast<uint8_t *>(inputs[i].data());
      t.type = static_cast<int32_t>(inputs[i].type());
      t.rank = inputs[i].rank();
      for (int k = 0; k < t.rank; ++k) t.dims[k] = inputs[i].dims()[static_cast<size_t>(k)];
    }
    status = api.output_dims(context_, in.data(), out.data());
    if (status != OPTC_OK) return api.last_error(nullptr);
    std::vector<std::vector<uint64_t>> memory;
    for (size_t i = 0; i < api.output_count(); ++i) {
      memory.emplace_back(out[i].tensor.needed_bytes / 8 + 8192);
      out[i].tensor.data = memory.back().data();
      out[i].tensor.capacity_bytes = memory.back().size() * 8;
    }
    status = api.run(context_, in.data(), out.data());
    if (status != OPTC_OK) return api.last_error(context_);
    outputs.clear();
    for (size_t i = 0; i < api.output_count(); ++i) {
      const optc_tensor &t = out[i].tensor;
      std::vector<uint8_t> bytes(t.needed_bytes);
      if (!bytes.empty()) std::memcpy(bytes.data(), t.data, t.needed_bytes);
      outputs.push_back(Constant::owned(static_cast<ElementType>(t.type), std::vector<int64_t>(t.dims, t.dims + t.rank),
                                        std::move(bytes)));
    }
    return "";
  }

  std::string bundle() const { return folder_ + "/bundle"; }
  const std::string &library() const { return library_path_; }
  static std::string text_of(const std::string &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  const optc_model *model() const { return model_; }
  optc_context *context() const { return context_; }
  optc_status status = OPTC_OK;

 private:
  std::string folder_, library_path_;
  void *library_ = nullptr;
  const optc_model *model_ = nullptr;
  optc_context *context_ = nullptr;
};

// Random values: floats in [-2, 2), integers in [0, high), bool.
inline Constant random_tensor(ElementType type, std::vector<int64_t> dims, uint32_t seed, int64_t high = 4) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-2, 2);
  const int64_t size = *storage_bytes(type, count);
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  for (int64_t i = 0; i < count; ++i) {
    const float f = uniform(generator);
    const int64_t n = static_cast<int64_t>(generator() % static_cast<uint64_t>(high));
    uint8_t *at = bytes.data() + i * bit_width(type) / 8;
    auto put = [&](auto v) { std::memcpy(at, &v, sizeof v); };
    switch (type) {
      case ElementType::kFloat32:
        put(f);
        break;
      case ElementType::kFloat64:
        put(static_cast<double>(f));
        break;
      case ElementType::kFloat16:
        put(float_to_half(f));
        break;
      case ElementType::kBFloat16:
        put(float_to_bfloat16(f));
        break;
      case ElementType::kInt64:
        put(n);
        break;
      case ElementType::kInt32:
        put(static_cast<int32_t>(n));
        break;
      case ElementType::kBool:
        put(static_cast<uint8_t>(n & 1));
        break;
      case ElementType::kInt8:
      case ElementType::kUInt8:
        put(static_cast<uint8_t>(n));
        break;
      default:
        put(static_cast<uint8_t>(n));
        break;
    }
  }
  return Constant::owned(type, std::move(dims), std::move(bytes));
}

// Largest |a - b| / max|b|; infinity when types or dims differ, or a NaN stands against a number.
inline double difference(const Constant &a, const Constant &b) {
  if (a.type() != b.type() || a.dims() != b.dims()) return INFINITY;
  double worst = 0, scale = 1e-30;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = a.as_double(i), y = b.as_double(i);
    if (x == y || (x != x && y != y)) continue;
    if (x != x || y != y) return INFINITY;
    worst = std::max(worst, std::abs(x - y));
  }
  for (int64_t i = 0; i < b.count(); ++i)
    if (std::isfinite(b.as_double(i))) scale = std::max(scale, std::abs(b.as_double(i)));
  return worst / scale;
}

}  // namespace optc::testing
