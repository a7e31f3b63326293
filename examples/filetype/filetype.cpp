// Names the type of the files that it is given, with the magika model compiled by optc.
//
//   filetype [--expected FILE.tsv] FILE...
//
// With --expected (lines `file<TAB>type<TAB>score`) each answer is compared; the exit code is 1 when one differs.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "config.h"
#include "magika.h"

namespace {

constexpr int kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);
constexpr int kTokens = kBeginSize + kEndSize;

// The loaded model. One run takes any number of files.
class Classifier {
 public:
  Classifier() {
    optc_options options = {};
    options.struct_size = sizeof(options);
    check(api().weights_load(&options, &weights_), nullptr);
    check(api().context_create(weights_, &options, &context_), nullptr);
  }
  ~Classifier() {
    api().context_destroy(context_);
    api().weights_release(weights_);
  }
  Classifier(const Classifier &) = delete;
  Classifier &operator=(const Classifier &) = delete;

  // tokens: [files, kTokens]; returns scores: [files, kTypeCount].
  std::vector<float> scores(const std::vector<int32_t> &tokens) {
    const int64_t files = static_cast<int64_t>(tokens.size()) / kTokens;
    std::vector<float> result(files * kTypeCount);
    optc_value input = {};
    input.tensor.data = const_cast<int32_t *>(tokens.data());
    input.tensor.capacity_bytes = tokens.size() * sizeof(int32_t);
    input.tensor.type = 6;  // int32
    input.tensor.rank = 2;
    input.tensor.dims[0] = files;
    input.tensor.dims[1] = kTokens;
    input.tensor.device_type = OPTC_CPU;
    optc_value output = {};
    output.tensor.data = result.data();
    output.tensor.capacity_bytes = result.size() * sizeof(float);
    output.tensor.device_type = OPTC_CPU;
    check(optc_run(magika_model(), context_, &input, &output), context_);
    return result;
  }

 private:
  static const optc_api &api() { return *magika_model()->api; }
  static void check(optc_status status, const optc_context *context) {
    if (status == OPTC_OK) return;
    std::fprintf(stderr, "filetype: status %d: %s\n", static_cast<int>(status), api().last_error(context));
    std::exit(2);
  }
  optc_weights *weights_ = nullptr;
  optc_context *context_ = nullptr;
};

bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_utf8(const std::string &text) {
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = text[i];
    const int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
    if (more < 0 || i + more >= text.size()) return false;
    uint32_t point = more == 0 ? c : c & (0x3F >> more);
    for (int k = 1; k <= more; ++k) {
      if ((text[i + k] & 0xC0) != 0x80) return false;
      point = point << 6 | (text[i + k] & 0x3F);
    }
    const bool too_long = (more == 2 && point < 0x800) || (more == 3 && point < 0x10000);
    if (too_long || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    i += more + 1;
  }
  return true;
}

struct File {
  std::string path;
  std::string name = "unreadable";  // of its type
  std::string description;
  float score = 1;
  int row = -1;  // among the files that the model sees
};

// What the model sees: the first bytes without leading white space, then the last ones without trailing white space;
// what is missing is padding. False when the file is too short for the model: its type is then in `file`.
bool append_tokens(File &file, std::vector<int32_t> &tokens) {
  std::ifstream in(file.path, std::ios::binary);
  if (!in) return false;
  in.seekg(0, std::ios::end);
  const int64_t size = in.tellg();
  const int64_t block = std::min<int64_t>(size, kBlockSize);
  if (size < 0) return false;
  std::string begin(block, '\0'), end(block, '\0');
  in.seekg(0);
  in.read(&begin[0], block);
  in.seekg(size - block);
  in.read(&end[0], block);
  if (!in) return false;

  const std::string block_text = begin;
  begin.erase(begin.begin(), std::find_if_not(begin.begin(), begin.end(), is_space));
  end.erase(std::find_if_not(end.rbegin(), end.rend(), is_space).base(), end.end());
  if (size == 0) {
    file.name = "empty";
    return false;
  }
  if (size < kMinFileSize || static_cast<int>(begin.size()) < kMinFileSize) {
    file.name = is_utf8(block_text) ? "txt" : "unknown";
    return false;
  }
  std::vector<int32_t> row(kTokens, kPaddingToken);
  const int64_t from_begin = std::min<int64_t>(begin.size(), kBeginSize);
  const int64_t from_end = std::min<int64_t>(end.size(), kEndSize);
  for (int64_t i = 0; i < from_begin; ++i) row[i] = static_cast<unsigned char>(begin[i]);
  for (int64_t i = 1; i <= from_end; ++i) row[kTokens - i] = static_cast<unsigned char>(end[end.size() - i]);
  tokens.insert(tokens.end(), row.begin(), row.end());
  return true;
}

void name_type(File &file, const float *scores) {
  const int best = static_cast<int>(std::max_element(scores, scores + kTypeCount) - scores);
  file.score = scores[best];
  const bool sure = file.score >= kTypes[best].threshold;
  file.name = sure ? kTypes[best].name : kTypes[best].fallback;
  file.description = sure ? kTypes[best].description : "";
}

struct Answer {
  std::string name;
  float score = 0;
};

std::map<std::string, Answer> read_answers(const char *path) {
  std::map<std::string, Answer> answers;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string file, name;
    float score;
    if (line.empty() || line[0] == '#') continue;
    if (fields >> file >> name >> score) answers[file] = {name, score};
  }
  if (answers.empty()) {
    std::fprintf(stderr, "filetype: no answers in %s\n", path);
    std::exit(2);
  }
  return answers;
}

}  // namespace

int main(int argc, char **argv) {
  std::vector<File> files;
  std::map<std::string, Answer> answers;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--expected" && i + 1 < argc) {
      answers = read_answers(argv[++i]);
    } else {
      files.emplace_back();
      files.back().path = argv[i];
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "usage: filetype [--expected FILE.tsv] FILE...\n");
    return 2;
  }

  std::vector<int32_t> tokens;
  int rows = 0;
  for (File &file : files)
    if (append_tokens(file, tokens)) file.row = rows++;
  if (rows > 0) {
    Classifier classifier;
    const std::vector<float> scores = classifier.scores(tokens);
    for (File &file : files)
      if (file.row >= 0) name_type(file, &scores[static_cast<size_t>(file.row) * kTypeCount]);
  }

  int wrong = 0;
  for (const File &file : files) {
    const std::string base = file.path.substr(file.path.find_last_of('/') + 1);
    const char *verdict = "";
    if (!answers.empty()) {
      const auto answer = answers.find(base);
      const bool right = answer != answers.end() && answer->second.name == file.name &&
                         std::fabs(answer->second.score - file.score) < 1e-3f;
      wrong += !right;
      verdict = right ? "ok     " : answer == answers.end() ? "no answer " : "WRONG  ";
    }
    std::printf("%s%-18s %-10s %.4f  %s\n", verdict, base.c_str(), file.name.c_str(), file.score,
                file.description.c_str());
  }
  if (!answers.empty())
    std::printf("%d of %d right\n", static_cast<int>(files.size()) - wrong, static_cast<int>(files.size()));
  return wrong ? 1 : 0;
}
