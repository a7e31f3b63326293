// Folders include one another in one direction only, and third-party headers stay where they belong
// (docs/architecture.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = OPTC_SOURCE_DIR;

// What each folder may include besides itself.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"support", {}},
    {"ir", {"support"}},
    {"ops", {"support", "ir", "runtime"}},  // tables that the runtime too computes (Resize)
    {"evaluate", {"support", "ir", "ops", "runtime"}},
    {"importer", {"support", "ir", "ops", "evaluate"}},
    {"optimizer", {"support", "ir", "ops", "evaluate"}},
    {"lowering", {"support", "ir", "ops", "evaluate", "runtime"}},  // the search that places buffers
    {"emit", {"support", "ir", "ops", "evaluate", "runtime"}},      // plans of kernels, which their scratch follows
    {"driver", {"support", "ir", "ops", "evaluate", "importer", "optimizer", "lowering", "emit", "convert", "runtime"}},
    {"convert", {"support", "ir", "ops", "importer", "emit"}},
    {"cli", {"support", "ir", "ops", "evaluate", "importer", "optimizer", "lowering", "emit", "convert", "driver"}},
    {"runtime", {}},
};

// Headers of other projects, and the only places that may include them.
struct ThirdParty {
  const char *prefix;
  std::set<std::string> folders;
};
const std::vector<ThirdParty> kThirdParty = {
    {"llvm", {"emit/ptx"}},
    {"CLI/", {"cli"}},
    {"google/protobuf", {"importer", "emit/onnx", "ops", "convert", "driver"}},
    {"onnx/", {"importer", "emit/onnx", "ops", "convert", "driver"}},
};

// Third-party headers that no public header of ours may show.
const std::vector<std::string> kNeverInHeaders = {"llvm", "CLI/", "google/protobuf", "onnx/", "fmt/", "nlohmann/"};

struct Include {
  fs::path file;  // relative to the root
  int line = 0;
  std::string target;
  bool quoted = false;
};

std::vector<Include> includes_of(const fs::path &path) {
  std::vector<Include> found;
  std::ifstream in(path);
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    size_t at = text.find_first_not_of(" \t");
    if (at == std::string::npos || text[at] != '#') continue;
    at = text.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos || text.compare(at, 7, "include") != 0) continue;
    const size_t open = text.find_first_of("<\"", at + 7);
    if (open == std::string::npos) continue;
    const size_t close = text.find_first_of(">\"", open + 1);
    if (close == std::string::npos) continue;
    found.push_back({path.lexically_relative(kRoot), line, text.substr(open + 1, close - open - 1), text[open] == '"'});
  }
  return found;
}

bool is_source(const fs::path &path) {
  const std::string e = path.extension().string();
  return e == ".h" || e == ".cc" || e == ".hpp" || e == ".cpp" || e == ".inc";
}

std::vector<Include> all_includes() {
  std::vector<Include> all;
  for (const auto &[folder, allowed] : kMayInclude) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto &entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      for (Include &include : includes_of(entry.path())) all.push_back(std::move(include));
    }
  }
  return all;
}

std::string where(const Include &include) {
  std::ostringstream out;
  out << include.file.string() << ":" << include.line << " includes \"" << include.target << "\"";
  return out.str();
}

bool starts_with(const std::string &text, const std::string &prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

bool lies_in(const fs::path &file, const std::string &folder) { return starts_with(file.string(), folder + "/"); }

}  // namespace

TEST(Folders, IncludeInOneDirectionOnly) {
  int checked = 0;
  for (const Include &include : all_includes()) {
    const std::string own = include.file.begin()->string();
    const std::string target = fs::path(include.target).begin()->string();
    if (!include.quoted || kMayInclude.count(target) == 0) continue;
    ++checked;
    // Library operators are written once, in runtime/cpu/lib_*.h; their shape inference may use what stands there.
    const bool library = own == "ops" && starts_with(include.target, "runtime/cpu/lib");
    EXPECT_TRUE(target == own || library || kMayInclude.at(own).count(target)) << where(include);
  }
  EXPECT_GT(checked, 0) << "no include was read: are the folders where the test looks?";
}

TEST(Folders, EmittersDoNotIncludeOneAnother) {
  for (const Include &include : all_includes()) {
    if (!lies_in(include.file, "emit") || !starts_with(include.target, "emit/")) continue;
    auto own = include.file.begin();
    auto target = fs::path(include.target);
    const std::string own_part = (++own)->string();
    auto t = target.begin();
    const std::string target_part = (++t)->string();
    // Files directly in emit/ are the interface that all emitters share.
    const bool shared = std::next(t) == target.end();
    EXPECT_TRUE(shared || own_part == target_part) << where(include);
  }
}

TEST(Folders, ThirdPartyHeadersStayWhereTheyBelong) {
  for (const Include &include : all_includes()) {
    for (const ThirdParty &party : kThirdParty) {
      if (!starts_with(include.target, party.prefix)) continue;
      bool allowed = false;
      for (const std::string &folder : party.folders) allowed = allowed || lies_in(include.file, folder);
      EXPECT_TRUE(allowed) << where(include);
    }
  }
}

TEST(Folders, PublicHeadersShowNoThirdPartyType) {
  for (const Include &include : all_includes()) {
    // Headers of the LLVM emitter and internal ones are seen by their own folder only.
    if (include.file.extension() != ".h" || lies_in(include.file, "emit/ptx")) continue;
    if (starts_with(include.file.stem().string(), "internal") ||
        include.file.string().find("/internal/") != std::string::npos)
      continue;
    for (const std::string &prefix : kNeverInHeaders)
      EXPECT_FALSE(starts_with(include.target, prefix)) << where(include);
  }
}

TEST(Folders, RuntimeNeedsNothingButTheStandardLibrary) {
  for (const Include &include : all_includes()) {
    if (!lies_in(include.file, "runtime") || !include.quoted) continue;
    const std::string target = fs::path(include.target).begin()->string();
    EXPECT_TRUE(target == "runtime" || fs::path(include.target).parent_path().empty() || !kMayInclude.count(target))
        << where(include);
  }
}
