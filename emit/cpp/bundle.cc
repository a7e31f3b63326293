// The files of a bundle.
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "emit/cpp/abi_files.h"
#include "emit/cpp/emit.h"
#include "emit/cpp/manifest.h"
#include "emit/cpp/model_printer.h"
#include "support/file.h"

namespace optc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kArrayLimit = 64 * 1024;  // embedded weights up to this size are a C array

// Quoted includes of a file, as written.
std::vector<std::string> quoted_includes(const std::string &text) {
  std::vector<std::string> found;
  for (size_t at = 0; (at = text.find("#include \"", at)) != std::string::npos;) {
    at += 10;
    const size_t end = text.find('"', at);
    if (end == std::string::npos) break;
    found.push_back(text.substr(at, end - at));
  }
  return found;
}

constexpr size_t kMaxRank = 8;  // OPTC_MAX_RANK of runtime/optc.h

class BundleWriter {
 public:
  BundleWriter(const Program &program, const BundleOptions &options, StagedDirectory &directory,
               Diagnostics &diagnostics)
      : program_(program), options_(options), directory_(directory), diagnostics_(diagnostics) {
    name_ = bundle_name(options.name.empty() ? (program.name.empty() ? "model" : program.name) : options.name);
  }

  Result<BundleReport> write() {
    ModelPrinter model(program_, name_, diagnostics_);
    OPTC_TRY(model.print());
    facts_.name = name_;
    facts_.compiler = options_.compiler.empty() ? "optc" : options_.compiler;
    facts_.source = fs::path(program_.info.source_path).filename().string();
    if (facts_.source.empty()) facts_.source = program_.info.name.empty() ? "a model" : program_.info.name;
    if (!program_.info.source_hash.empty()) facts_.source += " (xxh3 " + program_.info.source_hash.substr(0, 16) + ")";
    facts_.weights_file = model.weights_bytes > 0 && options_.weights == BundleOptions::Weights::kFile;
    facts_.sources = {"model.cpp"};
    if (options_.cuda) {
      facts_.sources.push_back("cuda.cpp");
      OPTC_TRY(put("src/cuda.cpp", options_.cuda->source));
      for (const auto &[file, text] : options_.cuda->ptx) OPTC_TRY(put("kernels/" + file, text));
      model.cuda_weights = (std::max<uint64_t>(model.weights_bytes, 64) + 255) / 256 * 256;
      model.weights_bytes = static_cast<uint64_t>(model.cuda_weights) + options_.cuda->weights_bytes;
      facts_.weights_file = options_.weights == BundleOptions::Weights::kFile;
    }
    std::unique_ptr<ModelPrinter> host;  // where some kernels of the GPU's Program run here
    if (options_.cuda && options_.cuda->schedule.mixed()) {
      host = std::make_unique<ModelPrinter>(*options_.cuda->program, name_ + "_host", diagnostics_,
                                            GpuHost{&options_.cuda->schedule, &options_.cuda->buffers});
      host->weights_bytes = (model.weights_bytes + 63) / 64 * 64;  // its constants follow
      OPTC_TRY(host->print());
      model.weights_bytes = host->weights_bytes;
    }

    OPTC_TRY(write_weights(model, host.get()));
    OPTC_TRY(write_kernels(model, name_, ""));
    if (host) OPTC_TRY(write_kernels(*host, name_ + "_host", "host_"));
    OPTC_TRY(put("include/" + name_ + ".h", c_header(program_, facts_)));
    OPTC_TRY(put("include/" + name_ + ".hpp", cpp_header(program_, facts_)));
    const std::string manifest = manifest_json(program_, model, options_, name_, hash_text_);
    OPTC_TRY(put("manifest.json", manifest));
    std::string literal;
    for (size_t at = 0; at < manifest.size();) {
      const size_t end = manifest.find('\n', at);
      literal += "    " + string_literal(std::string_view(manifest).substr(at, end - at + 1)) + "\n";
      at = end + 1;
    }
    literal.pop_back();
    std::string source = model.model_source(name_, literal, weights_spec_, host.get());
    if (options_.weights == BundleOptions::Weights::kEmbed && model.weights_bytes > 0) {
      const size_t at = source.find("\nusing namespace optc;");
      source.insert(at, fmt::format("\nextern \"C\" const unsigned char {}_weights_data[];\n", name_));
    }
    std::set<std::string> functions(model.library_functions.begin(), model.library_functions.end());
    if (host) functions.insert(host->library_functions.begin(), host->library_functions.end());
    OPTC_TRY(library_includes(functions, source));
    OPTC_TRY(put("src/model.cpp", source));
    OPTC_TRY(put("CMakeLists.txt", cmake_lists(facts_)));
    OPTC_TRY(put("examples/main.cpp", example_main(program_, facts_)));
    OPTC_TRY(put("python/" + name_ + ".py", python_module(program_, facts_)));
    const std::string memory =
        model.arena_bytes >= 0
            ? fmt::format("workspace {} bytes, weights {} bytes", model.arena_bytes, model.weights_bytes)
            : fmt::format("workspace by dims (workspace_bytes of the API tells), weights {} bytes",
                          model.weights_bytes);
    OPTC_TRY(put("README.md", readme(program_, facts_, memory)));
    OPTC_TRY(runtime_files());
    BundleReport report;
    report.kernels = model.kernels.size();
    report.files = files_;
    report.weights_bytes = model.weights_bytes;
    report.arena_bytes = model.arena_bytes;
    report.lower_bound_bytes = model.lower_bound_bytes;
    return report;
  }

 private:
  Status put(const std::string &path, const std::string &text) {
    ++files_;
    if (path.compare(0, 4, "src/") == 0)
      for (const std::string &include : quoted_includes(text)) wanted_.insert(include);
    return directory_.write(path, text, diagnostics_);
  }

  // Into src/PREFIXkernels*, in the namespace NAME_code.
  Status write_kernels(const ModelPrinter &model, const std::string &name, const std::string &prefix) {
    // An even number of files of about equal text, so that they compile side by side. (Each has its own copy of the
    // shared tiles.)
    size_t total = 0;
    bool strings = false;
    std::vector<const KernelText *> functions;
    std::map<std::string, std::vector<std::string>> others;  // the further kernels that run a function
    for (const KernelText &k : model.kernels) {
      if (k.function != k.name) {
        others[k.function].push_back(k.name);
        continue;
      }
      functions.push_back(&k);
      total += k.text.size();
      strings = strings || k.parameters.find("OptcLibString") != std::string::npos;
    }
    const size_t files = functions.size() < 12 ? 1 : functions.size() < 128 ? 2 : 4;
    std::string table = fmt::format(
        "// {}: the kernels' functions, chosen once for this machine's instruction set.\n#pragma once\n#include "
        "<limits>\n\n#include \"runtime/bundle/env.h\"\n#include \"runtime/bundle/scalar.h\"\n{}\nnamespace {}_code "
        "{{\n\nusing namespace optc;\n\nstruct Kernels {{\n",
        name, strings ? "#include \"runtime/cpu/lib.h\"\n" : "", name);
    for (const KernelText *k : functions) {
      std::string parameters = k->parameters;
      parameters.erase(0, std::string("[[maybe_unused]] ").size());
      table += fmt::format("  void (*{})({});\n", k->name, parameters);
    }
    table += "};\n\nconst Kernels &kernels();\n";
    for (size_t f = 0; f < files; ++f) table += fmt::format("void kernels_{}(Kernels *optc_table);\n", f);
    table += fmt::format("\n}}  // namespace {}_code\n", name);
    OPTC_TRY(put("src/" + prefix + "kernels.h", table));
    size_t next = 0, done = 0;
    for (size_t f = 0; f < files; ++f) {
      std::string text, fill;
      std::set<std::string> headers, plans;
      int panels = 0;
      const size_t goal = total * (f + 1) / files;
      while (next < functions.size() && (done < goal || f + 1 == files)) {
        const KernelText &k = *functions[next++];
        done += k.text.size();
        if (const auto shared = others.find(k.name); shared != others.end()) text += shared_comment(shared->second);
        text += k.text + "\n";
        fill += fmt::format("  optc_table->{0} = {0};\n", k.name);
        headers.insert(k.headers.begin(), k.headers.end());
        plans.insert(k.plan_headers.begin(), k.plan_headers.end());
        panels |= k.panels;
      }
      std::string inc = fmt::format(
          "// Kernels of {}, included once for each instruction set by {}kernels_{}.cpp.\n#include "
          "\"runtime/bundle/lanes.h\"\n",
          name, prefix, f);
      for (const std::string &h : headers) inc += "#include \"" + h + "\"\n";
      inc += "\nusing namespace optc;\n\n" + text +
             fmt::format("static void fill([[maybe_unused]] {}_code::Kernels *optc_table) {{\n{}}}\n", name, fill);
      OPTC_TRY(put(fmt::format("src/{}kernels_{}.inc", prefix, f), inc));
      std::string before;
      for (const std::string &plan : plans) before += "#include \"" + plan + "\"\n";
      if (panels) before += fmt::format("\n#define OPTC_PANELS {}  // widths of packed weights: gemm.h\n", panels);
      std::string cpp = fmt::format(
          "// Compiles {2}kernels_{0}.inc for each instruction set.\n#include \"{2}kernels.h\"\n{3}\n#define "
          "OPTC_KERNELS \"{2}kernels_{0}.inc\"\n#include \"runtime/cpu/foreach_isa.h\"\n\nnamespace {1}_code "
          "{{\n\nvoid "
          "kernels_{0}(Kernels *optc_table) {{ OPTC_PICK(fill)(optc_table); }}\n",
          f, name, prefix, before);
      if (f == 0) {
        cpp += "\nconst Kernels &kernels() {\n  static const Kernels table = [] {\n    Kernels filled{};\n";
        for (size_t g = 0; g < files; ++g) cpp += fmt::format("    kernels_{}(&filled);\n", g);
        cpp += "    return filled;\n  }();\n  return table;\n}\n";
      }
      cpp += fmt::format("\n}}  // namespace {}_code\n", name);
      OPTC_TRY(put(fmt::format("src/{}kernels_{}.cpp", prefix, f), cpp));
      facts_.sources.push_back(fmt::format("{}kernels_{}.cpp", prefix, f));
    }
    return {};
  }

  // Above a function that several kernels run; model.cpp names each of them where it calls it.
  static std::string shared_comment(const std::vector<std::string> &others) {
    constexpr size_t kNamed = 3;
    std::string text = "// With other arguments also:";
    for (size_t i = 0; i < others.size() && i < kNamed; ++i) text += (i ? ", " : " ") + others[i];
    if (others.size() > kNamed) text += fmt::format(" and {} more", others.size() - kNamed);
    return text + "\n";
  }

  static const Constant &constant(const Program &program, BufferId id) {
    const Buffer &b = program.buffer(id);
    if (b.kind == BufferKind::kConstant) return b.constant;
    const auto at = std::find(program.inputs.begin(), program.inputs.end(), id) - program.inputs.begin();
    return program.input_defaults[static_cast<size_t>(at)];
  }

  // Gives `sink` every byte behind the header, in order.
  template <typename Sink>
  bool each_part(const ModelPrinter &model, const ModelPrinter *host, const Sink &sink) const {
    static const char zeros[64] = {};
    uint64_t at = 64;
    auto fill = [&](uint64_t to) {
      while (at < to) {
        const uint64_t n = std::min<uint64_t>(64, to - at);
        if (!sink(zeros, n)) return false;
        at += n;
      }
      return true;
    };
    auto part = [&](const Constant &c, uint64_t offset) {
      if (!fill(offset) || (c.size() && !sink(c.data(), c.size()))) return false;
      at += c.size();
      return true;
    };
    for (const auto &[id, offset] : model.constants)
      if (!part(constant(program_, id), offset)) return false;
    if (options_.cuda)
      for (const auto &[c, offset] : options_.cuda->constants)
        if (!part(c, static_cast<uint64_t>(model.cuda_weights) + offset)) return false;
    if (host)
      for (const auto &[id, offset] : host->constants)
        if (!part(constant(*options_.cuda->program, id), offset)) return false;
    return fill(model.weights_bytes);
  }

  Status write_weights(ModelPrinter &model, const ModelPrinter *host) {
    if (model.weights_bytes == 0) {
      weights_spec_ = fmt::format("{{0, 0, 0, \"{}\", nullptr, nullptr, nullptr, nullptr}}", name_);
      return {};
    }
    model.weights_bytes =
        std::max<uint64_t>(model.weights_bytes, 384);  // the long form of the hash needs more than 240 bytes
    XXH3_state_t *state = XXH3_createState();
    XXH3_128bits_reset(state);
    each_part(model, host, [&](const void *data, uint64_t size) {
      XXH3_128bits_update(state, data, size);
      return true;
    });
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    hash_text_ = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
    char header[64] = {};
    std::memcpy(header, "OPTCWTS1", 8);
    const uint64_t fields[3] = {model.weights_bytes, hash.low64, hash.high64};
    std::memcpy(header + 8, fields, sizeof fields);
    const bool embed = options_.weights == BundleOptions::Weights::kEmbed;
    weights_spec_ = fmt::format(
        "{{{}u, 0x{:016x}u, 0x{:016x}u, \"{}\",\n      {}, OPTC_BUNDLE_FOLDER, OPTC_INSTALL_FOLDER, {}}}",
        model.weights_bytes, hash.low64, hash.high64, name_,
        facts_.weights_file ? "\"" + name_ + ".weights\"" : "nullptr", embed ? name_ + "_weights_data" : "nullptr");
    if (options_.weights == BundleOptions::Weights::kStrip) return {};
    if (embed && model.weights_bytes <= kArrayLimit) {
      std::string text = fmt::format(
          "// The weights of {0}.\nextern \"C\" {{\nextern const unsigned char {0}_weights_data[];\nalignas(64) const "
          "unsigned char {0}_weights_data[] = {{\n",
          name_);
      size_t column = 0;
      auto bytes = [&](const void *data, uint64_t size) {
        for (uint64_t i = 0; i < size; ++i) {
          text += fmt::format("{},", static_cast<int>(static_cast<const unsigned char *>(data)[i]));
          if (++column % 32 == 0) text += '\n';
        }
        return true;
      };
      bytes(header, 64);
      each_part(model, host, bytes);
      text += "};\n}\n";
      facts_.sources.push_back("weights.cpp");
      return put("src/weights.cpp", text);
    }
    const std::string path = embed ? "src/" + name_ + ".weights" : name_ + ".weights";
    std::error_code ignored;
    fs::create_directories(fs::path(directory_.path()) / "src", ignored);
    std::FILE *file = std::fopen((directory_.path() + "/" + path).c_str(), "wb");
    bool good = file != nullptr && std::fwrite(header, 1, 64, file) == 64;
    good = good && each_part(model, host,
                             [&](const void *data, uint64_t size) { return std::fwrite(data, 1, size, file) == size; });
    if (file && std::fclose(file) != 0) good = false;
    if (!good) return diagnostics_.error(ErrorKind::kIo, fmt::format("cannot write '{}'", path));
    ++files_;
    OPTC_TRY(directory_.add(path, diagnostics_));
    if (embed) {
      facts_.sources.push_back("weights.cpp");
      return put(
          "src/weights.cpp",
          fmt::format(
              R"(// The weights of {0}, taken into the object file as they are. OPTC_BUNDLE_FOLDER is the folder above this file's.
#if defined(__APPLE__)
__asm__(".const_data\n.p2align 6\n.globl _{0}_weights_data\n_{0}_weights_data:\n.incbin \"" OPTC_BUNDLE_FOLDER "/src/{0}.weights\"\n.text\n");
#else
__asm__(".section .rodata\n.balign 64\n.globl {0}_weights_data\n.hidden {0}_weights_data\n{0}_weights_data:\n.incbin \"" OPTC_BUNDLE_FOLDER "/src/{0}.weights\"\n.text\n");
#endif
)",
              name_));
    }
    return {};
  }

  // Library functions live in runtime/cpu/lib_*.h: the header that defines each.
  Status library_includes(const std::set<std::string> &functions, std::string &source) {
    std::set<std::string> headers;
    for (const std::string &function : functions) {
      bool found = false;
      std::error_code failed;
      std::vector<fs::path> files;
      for (const auto &entry : fs::directory_iterator(fs::path(options_.runtime_folder) / "cpu", failed))
        files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      for (const fs::path &path : files) {
        const std::string file = path.filename().string();
        if (file.compare(0, 4, "lib_") != 0 || path.extension() != ".h") continue;
        OPTC_ASSIGN(const std::string text, read_file(path.string(), diagnostics_));
        if (text.find("int optc_lib_" + function + "(") == std::string::npos) continue;
        headers.insert(file);
        found = true;
        break;
      }
      if (!found)
        return diagnostics_.error(ErrorKind::kUnsupported,
                                  fmt::format("the runtime has no library operator '{}'", function));
    }
    const size_t at = source.find("@LIBRARY@");
    if (at == std::string::npos) return {};
    std::string includes;
    for (const std::string &h : headers) includes += "#include \"runtime/cpu/" + h + "\"\n";
    source.replace(at, 9, includes);
    if (options_.weights == BundleOptions::Weights::kEmbed) return {};
    return {};
  }

  // The runtime headers that the sources include, and theirs.
  Status runtime_files() {
    std::vector<std::string> queue(wanted_.begin(), wanted_.end());
    std::set<std::string> done;
    OPTC_ASSIGN(const std::string abi, read_file(options_.runtime_folder + "/optc.h", diagnostics_));
    OPTC_TRY(put("include/optc.h", abi));
    while (!queue.empty()) {
      const std::string include = queue.back();
      queue.pop_back();
      if (include.compare(0, 8, "runtime/") != 0 || !done.insert(include).second || include == "runtime/optc.h")
        continue;
      OPTC_ASSIGN(std::string text, read_file(options_.runtime_folder + include.substr(7), diagnostics_));
      for (std::string next : quoted_includes(text)) {
        if (next.compare(0, 8, "runtime/") != 0) next = include.substr(0, include.rfind('/') + 1) + next;
        queue.push_back(next);
      }
      // In a bundle the ABI is the public header.
      for (size_t at; (at = text.find("\"runtime/optc.h\"")) != std::string::npos;) text.replace(at, 16, "\"optc.h\"");
      ++files_;
      OPTC_TRY(directory_.write("src/" + include, text, diagnostics_));
    }
    return {};
  }

  const Program &program_;
  const BundleOptions &options_;
  StagedDirectory &directory_;
  Diagnostics &diagnostics_;
  std::string name_, weights_spec_, hash_text_;
  AbiFacts facts_;
  std::set<std::string> wanted_;
  size_t files_ = 0;
};

}  // namespace

Result<BundleReport> emit_bundle(const Program &program, const BundleOptions &options, StagedDirectory &directory,
                                 Diagnostics &diagnostics) {
  for (const auto *list : {&program.inputs, &program.outputs})
    for (BufferId id : *list) {
      const Buffer &b = program.buffer(id);
      if (b.type.is_tensor() && b.shape().size() > kMaxRank)
        return diagnostics.error(ErrorKind::kUnsupported,
                                 fmt::format("'{}' has rank {}: a bundle takes and gives tensors up to rank {}", b.name,
                                             b.shape().size(), kMaxRank),
                                 {}, "reshape it in the model");
    }
  return BundleWriter(program, options, directory, diagnostics).write();
}

Result<std::string> print_kernel(const Program &program, const Kernel &kernel, Diagnostics &diagnostics) {
  if (!kernel.nest()) return diagnostics.error(ErrorKind::kUnsupported, "only loop nests are printed as one function");
  FaultPlaces places;
  return NestPrinter(program, kernel, places).print().text;
}

}  // namespace optc
