#include "driver/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "driver/element_range.h"
#include "driver/places.h"
#include "driver/tensor_file.h"
#include "driver/toolchain.h"
#include "ops/util.h"

namespace optc {
namespace {

const std::vector<ValueId> &model_inputs(const Graph &graph) { return graph.region(Graph::main()).inputs; }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u) {}
  uint64_t next() {  // splitmix64 (Steele, Lea, Flood 2014): the same numbers on every machine
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double normal() {
    const double u = 1 - uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  uint64_t state_;
};

template <typename T>
void put(std::vector<uint8_t> &bytes, int64_t i, T value) {
  std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
}

void put_float(std::vector<uint8_t> &bytes, int64_t i, ElementType type, double value) {
  const float narrow = static_cast<float>(value);
  if (type == ElementType::kFloat64 || type == ElementType::kComplex128)
    put(bytes, i, value);
  else if (type == ElementType::kFloat32 || type == ElementType::kComplex64)
    put(bytes, i, narrow);
  else if (type == ElementType::kFloat16)
    put(bytes, i, float_to_half(narrow));
  else if (type == ElementType::kBFloat16)
    put(bytes, i, float_to_bfloat16(narrow));
  else if (bit_width(type) == 8)
    put(bytes, i, float_to_small_float(type, narrow, true));
  else  // 4 bits: two in a byte
    bytes[i / 2] |= static_cast<uint8_t>((float_to_small_float(type, narrow, true) & 15) << (i % 2 * 4));
}

void put_integer(std::vector<uint8_t> &bytes, int64_t i, int bits, int64_t value) {
  if (bits == 64)
    put(bytes, i, value);
  else if (bits == 32)
    put(bytes, i, static_cast<int32_t>(value));
  else if (bits == 16)
    put(bytes, i, static_cast<int16_t>(value));
  else if (bits == 8)
    put(bytes, i, static_cast<uint8_t>(value));
  else
    bytes[i * bits / 8] |= static_cast<uint8_t>((value & ((1 << bits) - 1)) << (i * bits % 8));
}

// Makes the value of one input.
class Maker {
 public:
  Maker(const std::string &name, ElementRange range, const SizeByName &sizes, const Draw &draw, size_t position,
        Diagnostics &diagnostics)
      : name_(name),
        range_(std::move(range)),
        sizes_(sizes),
        draw_(draw),
        random_(draw.seed * 1000003 + position),
        diagnostics_(diagnostics) {}

  Result<RuntimeValue> make(const Type &type) {
    if (type.kind == Type::Kind::kTensor) return tensor(type);
    RuntimeValue value;
    value.kind = RuntimeValue::Kind::kSequence;
    size_t items = 2;
    if (type.kind == Type::Kind::kOptional) {
      value.kind = RuntimeValue::Kind::kOptional;
      items = 1;
    } else if (type.kind != Type::Kind::kSequence) {
      return cannot(type);
    }
    value.element = type.inner->element;
    for (size_t i = 0; i < items; ++i) {
      OPTC_ASSIGN(RuntimeValue item, make(*type.inner));
      value.items.push_back(std::move(item));
    }
    return value;
  }

 private:
  Failure cannot(const Type &type) {
    return diagnostics_.error(
        ErrorKind::kUsage, fmt::format("input '{}' is {}: no random values are made for it", name_, to_string(type)),
        {},
        type.is_tensor() && !type.has_shape() ? "--shape " + name_ + "=1x3x224x224 says its shape; --input " + name_ +
                                                    "=@file, or --inputs FOLDER, gives it"
                                              : "give it: --input " + name_ + "=@file, or --inputs FOLDER");
  }

  std::optional<int64_t> size_of(Dim dim) const {
    return evaluate(dim, [this](const DimSymbol &symbol) -> std::optional<int64_t> {
      const auto it = sizes_.find(symbol.name);
      if (it != sizes_.end()) return it->second;
      if (symbol.name == kItemSizeName) return 2;  // each item of a sequence has its own: --dim does not name it
      return std::nullopt;
    });
  }

  Result<RuntimeValue> tensor(const Type &type) {
    if (!type.has_shape()) return cannot(type);
    std::vector<int64_t> dims;
    int64_t count = 1;
    double needed = std::max(bit_width(type.element), 1) / 8.0;
    const double most = static_cast<double>(memory_bytes());
    for (const Dim dim : *type.shape) {
      const std::optional<int64_t> d = size_of(dim);
      if (!d || *d < 0)
        return diagnostics_.error(ErrorKind::kUsage,
                                  fmt::format("input '{}': dimension {} has no value", name_, dim.str()), {},
                                  "--dim NAME=N sets a dimension");
      dims.push_back(*d);
      needed *= static_cast<double>(*d);
      if (needed > 0 && needed <= most) count *= *d;
      if (*d == 0) count = 0;
    }
    if (constexpr double kMostOfAGuess = 1 << 30; draw_.guess && needed > kMostOfAGuess)
      return diagnostics_.error(ErrorKind::kUsage,
                                fmt::format("input '{}' would take {} at these sizes", name_, format_bytes(needed)), {},
                                "--dim NAME=N sets a dimension");
    if (needed > most)
      return diagnostics_.error(ErrorKind::kIo,
                                fmt::format("input '{}' of {} needs {}, this machine has {}", name_,
                                            to_string(Type::tensor(type.element, Shape(dims.begin(), dims.end()))),
                                            format_bytes(needed), format_bytes(most)),
                                {}, "--dim NAME=N sets a dimension");
    if (type.element == ElementType::kString) return RuntimeValue::of(strings(std::move(dims), count));
    std::vector<uint8_t> bytes(static_cast<size_t>(storage_bytes(type.element, count).value_or(0)));
    choose_limits(type.element, dims);
    const int64_t row = dims.size() >= 2 ? std::max<int64_t>(dims.back(), 1) : 0;
    const bool complex = is_complex(type.element);
    for (int64_t i = 0; i < (complex ? 2 * count : count); ++i) {
      if (complex || (is_float(type.element) && range_.limits.empty()))
        put_float(bytes, i, type.element, draw_.plain ? random_.uniform() : random_.normal());
      else if (is_float(type.element))
        put_float(bytes, i, type.element, static_cast<double>(integer(row > 0 && i % row == 0)));
      else
        put_integer(bytes, i, type.element == ElementType::kBool ? 8 : bit_width(type.element),
                    integer(row > 0 && i % row == 0));
    }
    return RuntimeValue::of(Constant::owned(type.element, std::move(dims), std::move(bytes)));
  }

  // Sets low_, below_ and mask_.
  void choose_limits(ElementType type, const std::vector<int64_t> &dims) {
    low_ = 0;
    below_ = 2;  // masks, switches, small counts
    mask_ = range_.limits.empty() && range_.compared.empty();
    if (type != ElementType::kBool && range_.limits.empty() && range_.compared.empty() && is_integer(type)) {
      // Pictures and quantized values.
      if (bit_width(type) <= 16 && (dims.size() >= 3 || is_signed_integer(type))) {
        const int bits = std::min(bit_width(type), 8);
        low_ = is_signed_integer(type) ? -(int64_t{1} << (bits - 1)) : 0;
        below_ = low_ + (int64_t{1} << bits);
        mask_ = false;
      }
    }
    bool first = true;
    for (const ElementRange::Limit &limit : range_.limits) {
      const auto low = size_of(limit.low), below = size_of(limit.below);
      if (low) low_ = first ? *low : std::max(low_, *low);
      if (below) below_ = first ? *below : std::min(below_, *below);
      first = false;
    }
    if (below_ > 0) low_ = std::max<int64_t>(low_, range_.limits.empty() ? low_ : 0);  // ids are not negative
    below_ = std::max(below_, low_ + 1);
  }

  int64_t integer(bool first_of_row) {
    const std::vector<int64_t> &compared = range_.compared;
    const uint64_t number = random_.next();
    if (draw_.plain) return compared.empty() ? (mask_ ? 1 : low_) : compared[0];
    if (range_.limits.empty() && !compared.empty()) return compared[number % compared.size()];
    // Ids that the model treats apart (padding) are among the others.
    if (!compared.empty() && number % 8 == 0) {
      const int64_t special = compared[(number / 8) % compared.size()];
      if (special >= low_ && special < below_) return special;
    }
    if (mask_ && first_of_row) return 1;  // no row is masked as a whole
    return low_ + static_cast<int64_t>(number % static_cast<uint64_t>(below_ - low_));
  }

  Constant strings(std::vector<int64_t> dims, int64_t count) {
    static const std::vector<std::string> kWords = {"a", "b", "the quick brown fox", "ONNX", "42", "x y", "été", ""};
    static const std::vector<std::string> kNumbers = {"0", "1", "-2", "3.5", "42", "1e3"};
    const std::vector<std::string> &list = range_.numeric_text    ? kNumbers
                                           : range_.words.empty() ? kWords
                                                                  : range_.words;
    std::vector<std::string> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(list[random_.next() % list.size()]);
    return Constant::strings(std::move(dims), std::move(values));
  }

  const std::string &name_;
  const ElementRange range_;
  const SizeByName &sizes_;
  const Draw draw_;
  Random random_;
  Diagnostics &diagnostics_;
  int64_t low_ = 0, below_ = 2;
  bool mask_ = false;  // nothing is known of the integers: 0 or 1
};

}  // namespace

Result<std::vector<RuntimeValue>> random_inputs(const Graph &graph, const SizeByName &sizes, const Draw &draw,
                                                Diagnostics &diagnostics) {
  std::vector<RuntimeValue> inputs;
  const std::vector<ValueId> &ids = model_inputs(graph);
  for (size_t k = 0; k < ids.size(); ++k) {
    if (k < graph.defaults().size() && graph.defaults()[k].valid()) {
      inputs.emplace_back();
      continue;
    }
    const Value &value = graph.value(ids[k]);
    Maker maker(value.name, element_range(graph, ids[k]), sizes, draw, k, diagnostics);
    OPTC_ASSIGN(RuntimeValue made, maker.make(value.type));
    inputs.push_back(std::move(made));
  }
  return inputs;
}

Result<std::vector<RuntimeValue>> read_inputs(const Graph &graph, const std::string &folder,
                                              const std::vector<std::pair<std::string, std::string>> &named,
                                              const std::vector<RuntimeValue> &fallback, Diagnostics &diagnostics) {
  const std::vector<ValueId> &inputs = model_inputs(graph);
  for (const auto &[name, file] : named) {
    const bool known = std::any_of(inputs.begin(), inputs.end(),
                                   [&graph, &wanted = name](ValueId id) { return graph.value(id).name == wanted; });
    if (!known) return diagnostics.error(ErrorKind::kUsage, fmt::format("the model has no input '{}'", name));
  }
  std::vector<RuntimeValue> values(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value &value = graph.value(inputs[i]);
    std::string path;
    for (const auto &[name, file] : named)
      if (name == value.name) path = file;
    if (path.empty() && !folder.empty()) {
      std::string file_name = value.name;
      std::replace(file_name.begin(), file_name.end(), '/', '_');
      for (const std::string &candidate :
           {fmt::format("{}/input_{}.pb", folder, i), fmt::format("{}/input_{}.npy", folder, i),
            fmt::format("{}/{}.npy", folder, file_name), fmt::format("{}/{}.pb", folder, file_name)})
        if (path.empty() && exists(candidate)) path = candidate;
    }
    if (path.empty()) {
      if (i < fallback.size() && fallback[i].kind != RuntimeValue::Kind::kAbsent) {
        values[i] = fallback[i];
        continue;
      }
      if (i < graph.defaults().size() && graph.defaults()[i].valid()) continue;
      return diagnostics.error(ErrorKind::kUsage, fmt::format("no file for input '{}'", value.name), {},
                               folder.empty() ? ""
                                              : fmt::format("{}/input_{}.pb, input_{}.npy or {}.npy is looked for",
                                                            folder, i, i, value.name));
    }
    OPTC_ASSIGN(values[i], read_value(path, value.type, diagnostics));
  }
  return values;
}

}  // namespace optc
