#pragma once
// Golden files: testdata/FOLDER/*.golden. A file holds
//   # <what it shows>, and lines that begin with one of the test's own keywords: the head
//   <what goes in>
//   ----
//   <what comes out>
// OPTC_BLESS=1 in the environment writes what comes out into the file.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace optc {

inline std::vector<std::string> golden_files(const std::string &folder) {
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(std::filesystem::path(OPTC_SOURCE_DIR) / folder))
    if (entry.path().extension() == ".golden") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

struct Golden {
  std::string path, head, before, after;
  std::vector<std::string> words;  // behind the keyword, of the lines that begin with it
};

inline Golden read_golden(const std::string &path, const std::string &keyword = "# ") {
  Golden golden;
  golden.path = path;
  std::ifstream in(path);
  bool second = false;
  for (std::string line; std::getline(in, line);) {
    if (!second && line == "----") {
      second = true;
    } else if (second) {
      golden.after += line + "\n";
    } else if (line.rfind(keyword, 0) == 0) {
      golden.words.push_back(line.substr(keyword.size()));
      golden.head += line + "\n";
    } else {
      (line.rfind("#", 0) == 0 ? golden.head : golden.before) += line + "\n";
    }
  }
  return golden;
}

// Compares what came out, or writes it, with `before` as the input's text.
inline void expect_golden(const Golden &golden, const std::string &before, const std::string &out) {
  if (std::getenv("OPTC_BLESS"))
    std::ofstream(golden.path) << golden.head << before << "----\n" << out;
  else
    EXPECT_EQ(out, golden.after);
}

// The name of a parameterized test: the file's stem.
inline std::string golden_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

}  // namespace optc
