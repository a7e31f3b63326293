#include "wordpiece.h"

#include <utf8proc.h>

#include <fstream>
#include <stdexcept>

namespace {

constexpr size_t kLongestWord = 100;  // characters; longer ones are [UNK]

bool is_space(utf8proc_int32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || utf8proc_category(c) == UTF8PROC_CATEGORY_ZS ||
         c == 0x2028 || c == 0x2029;
}

bool is_dropped(utf8proc_int32_t c) {
  if (c == 0 || c == 0xFFFD) return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(utf8proc_int32_t c) {
  if (c < 128) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// The blocks of CJK ideographs, whose characters are words of their own.
bool is_ideograph(utf8proc_int32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_utf8(utf8proc_int32_t c, std::string &to) {
  utf8proc_uint8_t bytes[4];
  to.append(reinterpret_cast<const char *>(bytes), static_cast<size_t>(utf8proc_encode_char(c, bytes)));
}

size_t length_of_first(std::string_view text) {
  size_t i = 1;
  while (i < text.size() && (text[i] & 0xC0) == 0x80) ++i;
  return i;
}

size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

}  // namespace

WordPiece::WordPiece(const std::string &vocabulary) {
  std::ifstream in(vocabulary);
  if (!in) throw std::runtime_error(vocabulary + " cannot be read");
  int64_t count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!ids_.emplace(line, count).second)
      throw std::runtime_error(vocabulary + ", line " + std::to_string(count + 1) + ": '" + line +
                               "' stands there twice");
  }
  unknown_ = id("[UNK]", vocabulary);
  begin_ = id("[CLS]", vocabulary);
  end_ = id("[SEP]", vocabulary);
}

int64_t WordPiece::id(const char *piece, const std::string &path) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end())
    throw std::runtime_error(path + " is no vocabulary of word pieces: " + piece + " is missing");
  return found->second;
}

void WordPiece::append_pieces(std::string_view word, std::vector<int64_t> &ids) const {
  const size_t before = ids.size();
  std::string piece;
  for (size_t begin = 0; begin < word.size();) {
    size_t end = word.size();
    auto found = ids_.end();
    for (; end > begin; --end) {
      if (end < word.size() && (word[end] & 0xC0) == 0x80) continue;  // in the middle of a character
      piece.assign(begin > 0 ? "##" : "").append(word.substr(begin, end - begin));
      found = ids_.find(piece);
      if (found != ids_.end()) break;
    }
    if (found == ids_.end()) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(found->second);
    begin = end;
  }
}

std::vector<int64_t> WordPiece::encode(std::string_view text, size_t limit, bool *cut) const {
  std::vector<int64_t> ids = {begin_};
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (characters(word) > kLongestWord)
      ids.push_back(unknown_);
    else
      append_pieces(word, ids);
    word.clear();
  };
  const auto *bytes = reinterpret_cast<const utf8proc_uint8_t *>(text.data());
  for (size_t at = 0; at < text.size() && ids.size() < limit;) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t taken = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    at += taken > 0 ? static_cast<size_t>(taken) : length_of_first(text.substr(at));
    if (taken <= 0) continue;
    if (is_space(c)) {
      end_word();
      continue;
    }
    if (is_dropped(c)) continue;
    if (is_ideograph(c)) end_word();
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      if (utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) continue;
      const utf8proc_int32_t lower = utf8proc_tolower(parts[i]);
      if (is_punctuation(lower)) {
        end_word();
        append_utf8(lower, word);
        end_word();
      } else {
        append_utf8(lower, word);
      }
    }
    if (is_ideograph(c)) end_word();
  }
  if (ids.size() < limit) end_word();
  const bool more = ids.size() + 1 > limit;
  if (more) ids.resize(limit - 1);
  if (cut) *cut = more;
  ids.push_back(end_);
  return ids;
}
