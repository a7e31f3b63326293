#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>

#include "importer/internal_tensor.h"
#include "importer/internal_types.h"
#include "ops/util.h"

namespace optc {
namespace {

constexpr int kMaxTypeDepth = 16;
constexpr size_t kMaxFormula = 200;
constexpr int kMaxRank = 64;

bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_identifier(const std::string &text) {
  if (text.empty() || text.size() > 64 || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), name_char) && text != "min" && text != "max";
}

std::string trimmed(const std::string &text) {
  size_t begin = 0, end = text.size();
  while (begin < end && std::isspace(static_cast<unsigned char>(text[begin]))) ++begin;
  while (end > begin && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
  return text.substr(begin, end - begin);
}

std::string sanitized(const std::string &text) {
  std::string name;
  for (char c : text) {
    if (name.size() >= 40) break;
    if (name_char(c))
      name.push_back(c);
    else if (!name.empty() && name.back() != '_')
      name.push_back('_');
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "d");
  if (name == "min" || name == "max") name += "_";
  return name;
}

// SymPy's spelling of a formula in that of parse_dim; false when it holds what parse_dim does not know.
bool translate(const std::string &text, std::string &out, std::vector<std::string> &names) {
  if (text.size() > kMaxFormula) return false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (name_char(c)) {
      size_t end = i;
      while (end < text.size() && name_char(text[end])) ++end;
      std::string word = text.substr(i, end - i);
      if (word == "Min" || word == "Max") word[0] = static_cast<char>(std::tolower(word[0]));
      if (!std::isdigit(static_cast<unsigned char>(word[0])) && word != "min" && word != "max") names.push_back(word);
      if (std::isdigit(static_cast<unsigned char>(word[0])) && word.size() > 15) return false;
      out += word;
      i = end;
    } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      out += '/';
      i += 2;
    } else if (c == '*' && i + 1 < text.size() && text[i + 1] == '*') {
      return false;
    } else if (c == '/') {
      return false;  // SymPy's true division
    } else if (std::string_view("+-*%(), ").find(c) != std::string_view::npos) {
      out += c;
      ++i;
    } else {
      return false;
    }
  }
  return true;
}

// "32..512": least and most.
std::optional<std::pair<int64_t, int64_t>> parse_range(const std::string &text) {
  const size_t dots = text.find("..");
  const auto number = [](std::string_view digits) -> int64_t {
    if (digits.empty() || digits.size() > 15) return -1;
    int64_t value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  };
  if (dots == std::string::npos) return std::nullopt;
  const int64_t min = number(std::string_view(text).substr(0, dots)),
                max = number(std::string_view(text).substr(dots + 2));
  if (min < 0 || max < min || max >= kDimOverflow) return std::nullopt;
  return std::pair(min, max);
}

}  // namespace

void DimNamer::note_plain_names(const onnx::TypeProto &type) {
  if (!type.has_tensor_type()) return;
  for (const auto &dim : type.tensor_type().shape().dim())
    if (dim.has_dim_param() && is_identifier(trimmed(dim.dim_param()))) plain_[trimmed(dim.dim_param())] = true;
}

Dim DimNamer::plain(const std::string &name) {
  if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
  for (const DimPin &pin : options_.dims) {
    if (pin.name != name) continue;
    pinned_.push_back(name);
    if (pin.min == pin.max) return Dim(pin.min);
    const Dim symbol = table_.model_symbol(name);
    table_.set_bounds(single_symbol(symbol), pin.min, pin.max);
    return symbol;
  }
  return table_.model_symbol(name);
}

Dim DimNamer::fresh(const std::string &value, int axis) {
  std::string name = sanitized(value) + "_d" + std::to_string(axis);
  const std::string base = name;
  for (int n = 1; plain_.count(name) || std::find(names_.begin(), names_.end(), name) != names_.end(); ++n)
    name = base + "_" + std::to_string(n);
  return plain(name);
}

Dim DimNamer::label(const std::string &raw, const std::string &value, int axis) {
  const std::string text = trimmed(raw);
  if (is_identifier(text)) return plain(text);
  if (std::none_of(text.begin(), text.end(), [](char c) { return std::isalpha(static_cast<unsigned char>(c)); }))
    return fresh(value, axis);  // "", "?", "-1", "*"
  auto [it, is_new] = labels_.try_emplace(text, Dim());
  if (!is_new) return it->second;
  std::string formula;
  std::vector<std::string> names;
  if (translate(text, formula, names) && !names.empty() &&
      std::all_of(names.begin(), names.end(), [&](const std::string &n) { return plain_.count(n) > 0; })) {
    for (const std::string &n : names) plain(n);
    if (const std::optional<Dim> dim = parse_dim(formula, table_)) {
      it->second = substitute(*dim, [&](const DimSymbol &s) -> std::optional<Dim> { return plain(s.name); });
      return it->second;
    }
  }
  std::string name = sanitized(text);
  const std::string base = name;
  for (int n = 1; plain_.count(name) || std::find(names_.begin(), names_.end(), name) != names_.end(); ++n)
    name = base + "_" + std::to_string(n);
  return it->second = plain(name);
}

Result<Type> DimNamer::convert(const onnx::TypeProto &type, const std::string &value, bool input, int depth,
                               Diagnostics &diagnostics) {
  if (depth > kMaxTypeDepth)
    return diagnostics.error(ErrorKind::kInvalid,
                             "the type of '" + value + "' nests more than " + std::to_string(kMaxTypeDepth) + " deep");
  auto element = [&](int32_t number) -> Result<ElementType> {
    const ElementType e = element_type_of(number);
    if (e == ElementType::kUndefined)
      return diagnostics.error(
          onnx::TensorProto::DataType_IsValid(number) && number != 0 ? ErrorKind::kUnsupported : ErrorKind::kInvalid,
          "'" + value + "' has the unknown element type " + std::to_string(number));
    return e;
  };
  switch (type.value_case()) {
    case onnx::TypeProto::kTensorType: {
      const auto &tensor = type.tensor_type();
      OPTC_ASSIGN(const ElementType e, element(tensor.elem_type()));
      if (!tensor.has_shape()) return Type::tensor(e, std::nullopt);
      if (tensor.shape().dim_size() > kMaxRank)
        return diagnostics.error(ErrorKind::kInvalid,
                                 "'" + value + "' has " + std::to_string(tensor.shape().dim_size()) + " dims");
      Shape shape;
      for (int i = 0; i < tensor.shape().dim_size(); ++i) {
        const auto &dim = tensor.shape().dim(i);
        if (dim.has_dim_value() && dim.dim_value() >= 0) {
          if (dim.dim_value() >= kDimOverflow)
            return diagnostics.error(ErrorKind::kInvalid,
                                     "'" + value + "' has a dim of " + std::to_string(dim.dim_value()));
          shape.push_back(Dim(dim.dim_value()));
        } else if (input && depth == 0) {
          shape.push_back(label(dim.dim_param(), value, i));
        } else if (depth > 0) {  // the items of a sequence differ in it, whatever name it has
          shape.push_back(item_size(table_));
        } else if (const std::string name = trimmed(dim.dim_param()); plain_.count(name)) {
          shape.push_back(plain(name));
        } else {
          return Type::tensor(e, std::nullopt);
        }
      }
      return Type::tensor(e, std::move(shape));
    }
    case onnx::TypeProto::kSequenceType: {
      OPTC_ASSIGN(Type inner, convert(type.sequence_type().elem_type(), value, input, depth + 1, diagnostics));
      return Type::sequence(std::move(inner));
    }
    case onnx::TypeProto::kOptionalType: {
      OPTC_ASSIGN(Type inner, convert(type.optional_type().elem_type(), value, input, depth + 1, diagnostics));
      return Type::optional(std::move(inner));
    }
    case onnx::TypeProto::kMapType: {
      OPTC_ASSIGN(const ElementType key, element(type.map_type().key_type()));
      OPTC_ASSIGN(Type inner, convert(type.map_type().value_type(), value, input, depth + 1, diagnostics));
      return Type::map(key, std::move(inner));
    }
    case onnx::TypeProto::kSparseTensorType:
      return diagnostics.error(ErrorKind::kUnsupported, "'" + value + "' is a sparse tensor");
    case onnx::TypeProto::kOpaqueType:
      return diagnostics.error(ErrorKind::kUnsupported, "'" + value + "' has an opaque type");
    default:
      return diagnostics.error(ErrorKind::kInvalid, "'" + value + "' has no type");
  }
}

// A dim as --shape says it: a number, a range, or an expression of names, which are dims as the model's own are. No
// value where it is none of them.
std::optional<Dim> DimNamer::given_dim(const std::string &text, std::optional<Dim> declared, const std::string &input,
                                       int axis) {
  if (const auto range = parse_range(text)) {
    const auto [min, max] = *range;
    if (declared && declared->is_constant())  // outside of the range the two contradict each other, as other sizes do
      return declared->value() >= min && declared->value() <= max ? *declared : Dim(min);
    if (min == max) return Dim(min);
    const DimSymbol *symbol = declared ? single_symbol(*declared) : nullptr;
    const Dim dim = symbol ? *declared : fresh(input, axis);
    table_.set_bounds(single_symbol(dim), min, max);
    return dim;
  }
  const std::optional<Dim> dim = parse_dim(text, table_);
  if (!dim || (dim->is_constant() && dim->value() < 0)) return std::nullopt;
  return substitute(*dim, [&](const DimSymbol &s) -> std::optional<Dim> { return plain(s.name); });
}

Result<Type> DimNamer::input_type(const onnx::TypeProto &proto, const std::string &input, Diagnostics &diagnostics) {
  OPTC_ASSIGN(Type type, convert(proto, input, true, 0, diagnostics));
  for (const auto &[name, dims] : options_.shapes) {
    if (name != input) continue;
    shaped_.push_back(name);
    if (!type.is_tensor())
      return diagnostics.error(ErrorKind::kUsage, "--shape of input '" + input + "', which is no tensor");
    if (type.shape && type.shape->size() != dims.size())
      return diagnostics.error(ErrorKind::kUsage, "--shape gives input '" + input + "' " + std::to_string(dims.size()) +
                                                      " dims, the model declares " + to_string(type));
    Shape shape;
    for (size_t i = 0; i < dims.size(); ++i) {
      const std::optional<Dim> declared = type.shape ? std::optional((*type.shape)[i]) : std::nullopt;
      const std::optional<Dim> dim = given_dim(dims[i], declared, input, static_cast<int>(i));
      if (!dim)
        return diagnostics.error(ErrorKind::kUsage,
                                 "--shape of input '" + input + "': '" + dims[i] + "' is not a dimension", {},
                                 "a number, a name, or a range of sizes such as 32..512");
      if (declared && declared->is_constant() && !(*declared == *dim))
        return diagnostics.error(ErrorKind::kUsage, "--shape gives dim " + std::to_string(i) + " of input '" + input +
                                                        "' the size " + dims[i] + ", the model declares " +
                                                        to_string(type));
      shape.push_back(*dim);
    }
    type.shape = std::move(shape);
  }
  return type;
}

Result<Type> DimNamer::inner_type(const onnx::TypeProto &type, const std::string &value, Diagnostics &diagnostics) {
  return convert(type, value, false, 0, diagnostics);
}

Status DimNamer::check_pins(Diagnostics &diagnostics) const {
  std::string known;
  for (const std::string &name : names_) known += (known.empty() ? "" : ", ") + name;
  for (const DimPin &pin : options_.dims)
    if (std::find(pinned_.begin(), pinned_.end(), pin.name) == pinned_.end())
      return diagnostics.error(ErrorKind::kUsage, "the model has no dimension named '" + pin.name + "'", {},
                               known.empty() ? "all its dimensions are fixed" : "its dimensions are: " + known);
  for (const auto &[name, dims] : options_.shapes)
    if (std::find(shaped_.begin(), shaped_.end(), name) == shaped_.end())
      return diagnostics.error(ErrorKind::kUsage, "--shape names '" + name + "', which is no input of the model");
  return {};
}

bool to_type_proto(const Type &type, onnx::TypeProto &out) {
  switch (type.kind) {
    case Type::Kind::kTensor: {
      auto *tensor = out.mutable_tensor_type();
      tensor->set_elem_type(static_cast<int32_t>(type.element));
      if (type.shape)
        for (Dim d : (tensor->mutable_shape(), *type.shape)) {
          auto *dim = tensor->mutable_shape()->add_dim();
          if (d.is_constant()) dim->set_dim_value(d.value());
        }
      return true;
    }
    case Type::Kind::kSequence:
      return to_type_proto(*type.inner, *out.mutable_sequence_type()->mutable_elem_type());
    case Type::Kind::kOptional:
      return to_type_proto(*type.inner, *out.mutable_optional_type()->mutable_elem_type());
    case Type::Kind::kMap:
      out.mutable_map_type()->set_key_type(static_cast<int32_t>(type.element));
      return to_type_proto(*type.inner, *out.mutable_map_type()->mutable_value_type());
    case Type::Kind::kNone:
      return false;
  }
  return false;
}

}  // namespace optc
