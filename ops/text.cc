// StringConcat, StringSplit, StringNormalizer, RegexFullMatch, Tokenizer, TfIdfVectorizer, MurmurHash3: library
// functions (runtime/cpu/lib_strings.h, lib_text.h, lib_tokens.h).

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"
#include "runtime/cpu/lib_regex.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

Status infer_concat(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  OPTC_ASSIGN(Shape out, c.broadcast({c.shape(0), c.shape(1)}));
  c.set_tensor(0, ElementType::kString, std::move(out));
  return {};
}
Status build_concat(BuildContext &c) {
  c.library("string_concat", {c.input(0), c.input(1)}, {c.output(0)});
  return {};
}

Status infer_split(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  Shape out = c.shape(0);
  c.set_tensor(1, ElementType::kInt64, out);
  out.push_back(c.run_time_size(0, out.size()));
  c.set_tensor(0, ElementType::kString, std::move(out));
  return {};
}
Status build_split(BuildContext &c) {
  std::vector<const DimSymbol *> defines;
  if (c.has_output(0)) {
    defines.assign(c.output_shape(0).size(), nullptr);
    defines.back() = single_symbol(c.output_shape(0).back());
  }
  c.library("string_split", {c.input(0)},
            {c.has_output(0) ? c.output(0) : BufferId(), c.has_output(1) ? c.output(1) : BufferId()},
            c.node().attributes, defines);
  return {};
}

Status infer_normalizer(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 1 && c.rank(0) != 2) return c.invalid("the input must have rank 1, or rank 2 with one row");
  if (c.rank(0) == 2) OPTC_TRY(c.same(c.shape(0)[0], 1, "the number of rows"));
  const std::string action(c.node().string_or("case_change_action", "NONE"));
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    return c.invalid("case_change_action '" + action + "' is not known");
  const size_t last = static_cast<size_t>(c.rank(0)) - 1;
  Shape out = c.shape(0);
  out[last] = c.run_time_size(0, last);
  if (last == 1) out[0] = 1;
  c.set_tensor(0, ElementType::kString, std::move(out));
  return {};
}
Status build_normalizer(BuildContext &c) {
  c.library("string_normalizer", {c.input(0)}, {c.output(0)}, c.node().attributes,
            {single_symbol(c.output_shape(0).back())});
  return {};
}

// A pattern that the library functions cannot match is said when the model is compiled.
Status check_pattern(InferContext &c, const std::string &pattern) {
  OptcRegex regex = optc_regex_compile(pattern.data(), pattern.size());
  const std::string error = regex.error ? regex.error : "";
  optc_regex_free(&regex);
  if (error.empty()) return {};
  if (error.find("Unicode property") != std::string::npos) return c.unsupported(error + ": '" + pattern + "'");
  return c.invalid(error + ": '" + pattern + "'");
}

Status infer_regex(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(check_pattern(c, std::string(c.node().string_or("pattern", ""))));
  c.set_tensor(0, ElementType::kBool, c.shape(0));
  return {};
}
Status build_regex(BuildContext &c) {
  c.library("regex_full_match", {c.input(0)}, {c.output(0)}, c.node().attributes);
  return {};
}

// com.microsoft.Tokenizer: what matches tokenexp, what lies between separators, or (a tokenexp of ".", one separator
// that is empty) each character.
Status infer_tokenizer(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.element(0) != ElementType::kString) return c.invalid("the input must be strings");
  if (c.rank(0) != 1 && c.rank(0) != 2) return c.invalid("the input must have rank 1 or 2");
  const std::string expression(c.node().string_or("tokenexp", ""));
  const Attribute *a = c.node().attribute("separators");
  const auto *separators = a ? std::get_if<std::vector<std::string>>(a) : nullptr;
  if (expression.empty() == (!separators || separators->empty()))
    return c.invalid("either tokenexp or separators is needed");
  if (c.node().int_or("mincharnum", 1) < 1) return c.invalid("mincharnum must be positive");
  if (!expression.empty()) OPTC_TRY(check_pattern(c, expression));
  for (size_t i = 0; separators && i < separators->size(); ++i) {
    if ((*separators)[i].empty() && separators->size() > 1) return c.invalid("a separator is empty");
    OPTC_TRY(check_pattern(c, (*separators)[i]));
  }
  Shape out = c.shape(0);
  out.push_back(c.run_time_size(0, out.size()));
  c.set_tensor(0, ElementType::kString, std::move(out));
  return {};
}
Status build_tokenizer(BuildContext &c) {
  c.library("tokenize", {c.input(0)}, {c.output(0)}, c.node().attributes, {single_symbol(c.output_shape(0).back())});
  return {};
}

// com.microsoft.MurmurHash3: a hash of each element's bytes.
Status infer_murmur_hash(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  switch (c.element(0)) {
    case ElementType::kInt32:
    case ElementType::kUInt32:
    case ElementType::kInt64:
    case ElementType::kUInt64:
    case ElementType::kFloat32:
    case ElementType::kFloat64:
    case ElementType::kString:
      break;
    default:
      return c.invalid("the input must be strings or numbers of 32 or 64 bits");
  }
  c.set_tensor(0, c.node().int_or("positive", 1) != 0 ? ElementType::kUInt32 : ElementType::kInt32, c.shape(0));
  return {};
}
Status build_murmur_hash(BuildContext &c) {
  c.library("murmur_hash", {c.input(0)}, {c.output(0)}, c.node().attributes);
  return {};
}

Status infer_tfidf(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const auto *indexes = c.node().ints("ngram_indexes"), *counts = c.node().ints("ngram_counts");
  if (!indexes || indexes->empty() || !counts) return c.invalid("ngram_counts and ngram_indexes are needed");
  if (c.rank(0) != 1 && c.rank(0) != 2) return c.invalid("the input must have rank 1 or 2");
  int64_t size = 0;
  for (int64_t i : *indexes) {
    if (i < 0) return c.invalid("ngram_indexes has a negative entry");
    size = i + 1 > size ? i + 1 : size;
  }
  for (int64_t n : *counts)
    if (n < 0) return c.invalid("ngram_counts has a negative entry");
  Shape out;
  if (c.rank(0) == 2) out.push_back(c.shape(0)[0]);
  out.push_back(size);
  c.set_tensor(0, ElementType::kFloat32, std::move(out));
  return {};
}
Status build_tfidf(BuildContext &c) {
  const Node &node = c.node();
  Constant pool;
  if (const auto *ints = node.ints("pool_int64s")) pool = Constant::int64s(*ints);
  if (const Attribute *a = node.attribute("pool_strings"))
    if (const auto *list = std::get_if<std::vector<std::string>>(a); list && !list->empty())
      pool = Constant::strings({static_cast<int64_t>(list->size())}, *list);
  if (!pool.valid() || (pool.type() == ElementType::kString) != (c.input_type(0).element == ElementType::kString))
    return c.invalid("the pool does not fit the input's type");
  std::vector<std::pair<std::string, Attribute>> attributes;
  for (const auto &attribute : node.attributes)
    if (attribute.first != "pool_int64s" && attribute.first != "pool_strings") attributes.push_back(attribute);
  c.library("tfidf", {c.input(0), c.constant_buffer("pool", pool)}, {c.output(0)}, attributes);
  return {};
}

const OpDef kOps[] = {
    {"StringConcat", OpForm::kLibrary, 20, infer_concat, build_concat},
    {"StringSplit", OpForm::kLibrary, 20, infer_split, build_split},
    {"StringNormalizer", OpForm::kLibrary, 10, infer_normalizer, build_normalizer},
    {"com.microsoft.Tokenizer",
     OpForm::kLibrary,
     1,
     infer_tokenizer,
     build_tokenizer,
     {},
     true,
     {"X", "Y", "mark:b! mincharnum:i! pad_value:s! separators:ss tokenexp:s"}},
    {"com.microsoft.MurmurHash3",
     OpForm::kLibrary,
     1,
     infer_murmur_hash,
     build_murmur_hash,
     {},
     true,
     {"X", "Y", "positive:b seed:i"}},
    {"RegexFullMatch", OpForm::kLibrary, 20, infer_regex, build_regex},
    {"TfIdfVectorizer", OpForm::kLibrary, 9, infer_tfidf, build_tfidf},
};

}  // namespace

std::span<const OpDef> text_ops() { return kOps; }

}  // namespace optc
