// Dimensions as text: sums and products of names and integers, floor_div, mod, min and max, as Dim::str prints them.
#include <string>
#include <string_view>

#include "ir/dim/dim.h"

namespace optc {
namespace {

class Parser {
 public:
  Parser(std::string_view text, DimTable &table) : text_(text), table_(table) {}
  std::optional<Dim> parse() {
    const auto d = sum(0);
    skip();
    return d && at_ == text_.size() ? d : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ < text_.size() && text_[at_] == c) return ++at_, true;
    return false;
  }
  std::optional<Dim> sum(int depth) {
    if (depth > 64) return std::nullopt;
    auto left = product(depth);
    while (left) {
      if (take('+')) {
        const auto right = product(depth);
        if (!right) return std::nullopt;
        left = *left + *right;
      } else if (take('-')) {
        const auto right = product(depth);
        if (!right) return std::nullopt;
        left = *left - *right;
      } else {
        return left;
      }
    }
    return std::nullopt;
  }
  std::optional<Dim> product(int depth) {
    auto left = unary(depth);
    while (left) {
      char op = 0;
      if (take('*'))
        op = '*';
      else if (take('/'))
        op = '/';
      else if (take('%'))
        op = '%';
      else
        return left;
      const auto right = unary(depth);
      if (!right || (op != '*' && right->is_constant() && right->value() <= 0)) return std::nullopt;
      left = op == '*' ? *left * *right : op == '/' ? floor_div(*left, *right) : mod(*left, *right);
    }
    return std::nullopt;
  }
  std::optional<Dim> unary(int depth) {
    if (depth > 64) return std::nullopt;
    if (take('-')) {
      const auto d = unary(depth + 1);
      return d ? std::optional<Dim>(-*d) : std::nullopt;
    }
    if (take('(')) {
      const auto d = sum(depth + 1);
      return d && take(')') ? d : std::nullopt;
    }
    skip();
    const size_t start = at_;
    auto name_char = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
             c == '$' || c == ':' || c == '#' || c == '@';
    };
    while (at_ < text_.size() && name_char(text_[at_])) ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    if (word.empty()) return std::nullopt;
    if (word[0] >= '0' && word[0] <= '9') {
      int64_t v = 0;
      for (char c : word) {
        if (c < '0' || c > '9' || v > kDimOverflow / 16) return std::nullopt;
        v = v * 10 + (c - '0');
      }
      return Dim(v);
    }
    if ((word == "min" || word == "max") && take('(')) {
      const auto a = sum(depth + 1);
      if (!a || !take(',')) return std::nullopt;
      const auto b = sum(depth + 1);
      if (!b || !take(')')) return std::nullopt;
      return word == "min" ? optc::min(*a, *b) : optc::max(*a, *b);
    }
    return table_.model_symbol(word);
  }

  std::string_view text_;
  DimTable &table_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Dim> parse_dim(std::string_view text, DimTable &table) { return Parser(text, table).parse(); }

}  // namespace optc
