// The files of a bundle's kernels: their functions, and the table that chooses an instruction set's.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "emit/cpp/bundle_writer.h"

namespace optc {
namespace {

constexpr size_t kFileLines = 1500;  // of a file of kernels: some 15 s for three instruction sets

// Lines that are no comments.
size_t code_lines(const std::string &text) {
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t first = std::min(text.find_first_not_of(" \n", at), text.size());
    if (text.compare(first, 2, "//") == 0) --lines;
    at = std::min(text.find('\n', first), text.size() - 1) + 1;
  }
  return lines;
}

// Above a function that several kernels run; model.cpp names each of them where it calls it.
std::string shared_comment(const std::vector<std::string> &runs) {
  constexpr size_t kNamed = 3;
  std::string text = "// Run by";
  for (size_t i = 0; i < runs.size() && i < kNamed; ++i) text += (i ? ", " : " ") + runs[i];
  if (runs.size() > kNamed) text += fmt::format(" and {} more", runs.size() - kNamed);
  return text + ":\n";
}

}  // namespace

Status BundleWriter::write_kernels(const ModelPrinter &model, const std::string &name, const std::string &prefix) {
  // An even number of files of about equal text, so that they compile side by side. (Each has its own copy of the
  // shared tiles.)
  size_t total = 0;  // lines of code, by which the compiler's time goes
  bool strings = false;
  std::vector<const KernelText *> functions;
  std::map<std::string, std::vector<std::string>> runs;  // the kernels that run a function
  for (const KernelText &k : model.kernels) {
    runs[k.function].push_back(k.name);
    if (!k.defines) continue;
    functions.push_back(&k);
    total += code_lines(k.text);
    strings = strings || k.parameters.find("OptcLibString") != std::string::npos;
  }
  const size_t wanted = functions.size() < 12 ? 1 : functions.size() < 128 ? 2 : 4;
  const size_t files = std::max(wanted, (total / kFileLines + 1) / 2 * 2);
  std::string table = fmt::format(
      "// {}: the kernels' functions, chosen once for this machine's instruction set.\n#pragma once\n#include "
      "<limits>\n\n#include \"runtime/bundle/env.h\"\n#include \"runtime/bundle/scalar.h\"\n{}\nnamespace {}_code "
      "{{\n\nusing namespace optc;\n\nstruct Kernels {{\n",
      name, strings ? "#include \"runtime/cpu/lib.h\"\n" : "", name);
  for (const KernelText *k : functions) {
    std::string parameters = k->parameters;
    parameters.erase(0, std::string("[[maybe_unused]] ").size());
    table += fmt::format("  void (*{})({});\n", k->function, parameters);
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
      done += code_lines(k.text);
      if (const auto &all = runs.at(k.function); all.size() > 1) text += shared_comment(all);
      text += k.text + "\n";
      fill += fmt::format("  optc_table->{0} = {0};\n", k.function);
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
           fmt::format("static void optc_fill([[maybe_unused]] {}_code::Kernels *optc_table) {{\n{}}}\n", name, fill);
    OPTC_TRY(put(fmt::format("src/{}kernels_{}.inc", prefix, f), inc));
    std::string before;
    for (const std::string &plan : plans) before += "#include \"" + plan + "\"\n";
    if (panels) before += fmt::format("\n#define OPTC_PANELS {}  // widths of packed weights: gemm.h\n", panels);
    std::string cpp = fmt::format(
        "// Compiles {2}kernels_{0}.inc for each instruction set.\n#include \"{2}kernels.h\"\n{3}\n#define "
        "OPTC_KERNELS \"{2}kernels_{0}.inc\"\n#include \"runtime/cpu/foreach_isa.h\"\n\nnamespace {1}_code "
        "{{\n\nvoid "
        "kernels_{0}(Kernels *optc_table) {{ OPTC_PICK(optc_fill)(optc_table); }}\n",
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

}  // namespace optc
