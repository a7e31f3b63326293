#include "emit/cpp/text_lines.h"

#include <algorithm>

namespace optc {
namespace {

constexpr std::string_view kDeeper = "    ";  // of what goes on in the next line

// The most of `text` that fits into `room` bytes and does not end inside of a character of UTF-8. At least one byte.
size_t cut(std::string_view text, size_t room) {
  size_t n = std::min(text.size(), std::max<size_t>(room, 1));
  if (n == text.size()) return n;
  size_t at = n;
  while (at > 0 && n - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 ? at : n;
}

class Wrapper {
 public:
  explicit Wrapper(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::string_view line = text_.substr(at_, end - at_);
      const size_t raw = raw_string(line);
      if (raw != std::string_view::npos) {
        // As it is, up to the line in which the raw string ends.
        const size_t open = text_.find('(', at_ + raw);
        const std::string close = ")" + std::string(text_.substr(at_ + raw + 2, open - at_ - raw - 2)) + "\"";
        const size_t last = std::min(text_.find(close, open), text_.size());
        const size_t stop = std::min(text_.find('\n', last), text_.size() - 1);
        out_ += text_.substr(at_, stop + 1 - at_);
        at_ = stop + 1;
        continue;
      }
      if (line.size() > kLongestLine)
        wrap(line);
      else
        out_ += line;
      if (end < text_.size()) out_ += '\n';
      at_ = end + 1;
    }
    return std::move(out_);
  }

 private:
  // Where a raw string begins in the line, outside of other literals and comments.
  static size_t raw_string(std::string_view line) {
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '/' && i + 1 < line.size() && line[i + 1] == '/') break;
      if (line[i] == 'R' && i + 1 < line.size() && line[i + 1] == '"' && (i == 0 || line[i - 1] == ' ')) return i;
      if (line[i] == '"') i = literal_end(line, i) - 1;
    }
    return std::string_view::npos;
  }
  // Behind the closing quote of the literal that begins at `at`.
  static size_t literal_end(std::string_view line, size_t at) {
    const char quote = line[at];
    size_t end = at + 1;
    while (end < line.size() && line[end] != quote) end += line[end] == '\\' ? 2 : 1;
    return std::min(end + 1, line.size());
  }

  void next_line() {
    while (!out_.empty() && out_.back() == ' ') out_.pop_back();
    out_ += '\n';
    out_ += indent_;
    out_ += kDeeper;
    begin_ = column_ = indent_.size() + kDeeper.size();
    comma_column_ = 0;
  }
  // Where the last comma stands in the line's second half the line ends there, so that `float *x` stays together.
  void next_line_at_comma() {
    if (comma_column_ <= kLongestLine / 2) return next_line();
    const std::string tail = out_.substr(comma_);
    out_.resize(comma_);
    next_line();
    put(tail);
  }
  void put(std::string_view token) {
    out_ += token;
    column_ += token.size();
  }

  void wrap(std::string_view line) {
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    if (first == line.size() || line[first] == '#') {
      out_ += line;
      return;
    }
    indent_ = std::string(line.substr(0, std::min<size_t>(first, 40)));
    out_ += indent_;
    begin_ = column_ = indent_.size();
    comma_column_ = 0;
    for (size_t i = first; i < line.size();) {
      if (line[i] == '/' && i + 1 < line.size() && line[i + 1] == '/') return comment(line.substr(i + 2));
      if (line[i] == '"') {
        const size_t end = literal_end(line, i);
        literal(line.substr(i, end - i));
        i = end;
        continue;
      }
      // Up to where a line may end: behind spaces or a comma.
      size_t end = i;
      while (end < line.size() && line[end] != ' ' && line[end] != ',' && line[end] != '"' &&
             !(line[end] == '/' && end + 1 < line.size() && line[end + 1] == '/'))
        end = line[end] == '\'' ? literal_end(line, end) : end + 1;
      if (end < line.size() && line[end] == ',') ++end;
      const size_t word = end;
      while (end < line.size() && line[end] == ' ') ++end;
      while (column_ + (word - i) > kLongestLine && column_ > begin_) next_line_at_comma();
      put(line.substr(i, end - i));
      if (line[word - 1] == ',') comma_ = out_.size(), comma_column_ = column_;
      i = end;
    }
    while (!out_.empty() && out_.back() == ' ') out_.pop_back();
  }

  void literal(std::string_view token) {
    // Room for what commonly follows a literal: a comma, brackets, a semicolon.
    constexpr size_t kBehind = 4;
    if (column_ + token.size() + kBehind > kLongestLine && column_ > begin_) next_line();
    while (column_ + token.size() + kBehind > kLongestLine) {
      const size_t room = kLongestLine - column_ - kBehind;
      size_t end = 1;
      while (end < token.size() - 1) {
        size_t step = 1;
        if (token[end] == '\\') step = token[end + 1] >= '0' && token[end + 1] <= '7' ? 4 : 2;
        if (end + step > room) break;
        end += step;
      }
      if (token[end - 1] != '\\') end = std::max<size_t>(cut(token, end), 2);
      put(token.substr(0, end));
      put("\"");
      next_line();
      rest_ = "\"" + std::string(token.substr(end));
      token = rest_;
    }
    put(token);
  }

  void comment(std::string_view text) {
    // Behind code that reaches far, a comment of its own.
    if (column_ + 24 > kLongestLine) next_line();
    const std::string lead = "//";
    put(lead);
    while (!text.empty()) {
      size_t n = cut(text, kLongestLine - column_);
      if (n < text.size()) {
        const size_t space = text.rfind(' ', n);
        if (space != std::string_view::npos && space > 8) n = space;
        while (n > 1 && text[n - 1] == '\\') --n;  // a backslash would join lines
        if (text[n - 1] == '\\') n = text.size();
      }
      put(text.substr(0, n));
      text.remove_prefix(n);
      if (text.empty()) return;
      out_ += '\n';
      out_ += indent_;
      out_ += lead;
      column_ = indent_.size() + lead.size();
      if (text[0] != ' ') put(" ");
    }
  }

  std::string_view text_;
  std::string out_, indent_, rest_;
  size_t at_ = 0, column_ = 0, begin_ = 0;
  // Behind the line's last comma and its spaces: in out_, and the column (0: there is none).
  size_t comma_ = 0, comma_column_ = 0;
};

}  // namespace

std::string wrap_code(std::string_view text) { return Wrapper(text).run(); }

std::string wrap_words(std::string_view text, std::string_view first, std::string_view others) {
  std::string out(first);
  size_t column = first.size();
  bool blank = true;  // nothing stands in the line yet
  for (size_t i = 0; i < text.size();) {
    size_t end = std::min(text.find(' ', i), text.size());
    std::string_view word = text.substr(i, end - i);
    if (!blank && column + 1 + word.size() > kLongestLine) {
      (out += '\n') += others;
      column = others.size();
      blank = true;
    }
    if (!blank) out += ' ', ++column;
    while (column + word.size() > kLongestLine) {
      const size_t n = cut(word, kLongestLine - column);
      ((out += word.substr(0, n)) += '\n') += others;
      column = others.size();
      word.remove_prefix(n);
    }
    out += word;
    column += word.size();
    blank = false;
    i = end + 1;
  }
  return out;
}

}  // namespace optc
