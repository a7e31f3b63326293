#include "driver/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "driver/places.h"
#include "driver/tensor_file.h"
#include "driver/toolchain.h"

namespace optc {
namespace {

const std::vector<ValueId> &model_inputs(const Graph &graph) { return graph.region(Graph::main()).inputs; }

// The number of rows of the tables that `value` indexes, followed through operators that keep its elements; 0: it
// indexes none.
int64_t indexed_rows(const Graph &graph, ValueId value, int depth) {
  int64_t rows = 0;
  const auto take = [&rows](int64_t n) {
    if (n > 0) rows = rows == 0 ? n : std::min(rows, n);
  };
  if (depth > 8) return 0;
  for (const Use &use : graph.value(value).uses) {
    if (use.kind != UseKind::kOperand) continue;
    const Node &node = graph.node(use.node);
    if (node.op == "Gather" && use.index == 1) {
      const Type &data = graph.value(node.inputs[0]).type;
      if (!data.has_shape() || data.rank() == 0) continue;
      int64_t axis = node.int_or("axis", 0);
      if (axis < 0) axis += data.rank();
      const Dim dim = (*data.shape)[axis];
      if (dim.is_constant()) take(dim.value());
    } else if (use.index == 0 &&
               (node.op == "Cast" || node.op == "Identity" || node.op == "Reshape" || node.op == "Squeeze" ||
                node.op == "Unsqueeze" || node.op == "Transpose" || node.op == "Flatten" || node.op == "Slice")) {
      take(indexed_rows(graph, node.outputs[0], depth + 1));
    }
  }
  return rows;
}

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

}  // namespace

Result<SizeByName> choose_sizes(const Graph &graph, const SizeByName &given, int set, Diagnostics &diagnostics) {
  SizeByName sizes;
  std::map<const DimSymbol *, bool> in_front_only;
  std::vector<const DimSymbol *> symbols;
  for (const ValueId input : model_inputs(graph)) {
    const Type &type = graph.value(input).type;
    if (!type.has_shape()) continue;
    for (int axis = 0; axis < type.rank(); ++axis) {
      std::vector<const DimSymbol *> here;
      collect_symbols((*type.shape)[axis], here);
      for (const DimSymbol *symbol : here) {
        const auto [place, is_new] = in_front_only.emplace(symbol, true);
        if (is_new) symbols.push_back(symbol);
        if (axis != 0 || type.rank() == 1) place->second = false;
      }
    }
  }
  for (const DimSymbol *symbol : symbols) {
    int64_t value = in_front_only[symbol] ? 1 + set : (set == 0 ? 8 : 13);
    if (symbol->multiple > 1) value = std::max<int64_t>(1, value / symbol->multiple + set) * symbol->multiple;
    value = std::clamp(value, symbol->min, symbol->max);
    if (const auto it = given.find(symbol->name); it != given.end()) value = it->second;
    if (value < symbol->min || value > symbol->max)
      return diagnostics.error(ErrorKind::kUsage, fmt::format("dimension {} = {} is outside {}..{}", symbol->name,
                                                              value, symbol->min, symbol->max));
    sizes[symbol->name] = value;
  }
  for (const auto &[name, value] : given)
    if (!sizes.count(name)) sizes[name] = value;
  return sizes;
}

Result<std::vector<RuntimeValue>> random_inputs(const Graph &graph, const SizeByName &sizes, uint64_t seed,
                                                Diagnostics &diagnostics) {
  std::vector<RuntimeValue> inputs;
  const DimValues values = [&sizes](const DimSymbol &symbol) -> std::optional<int64_t> {
    const auto it = sizes.find(symbol.name);
    if (it == sizes.end()) return std::nullopt;
    return it->second;
  };
  for (size_t k = 0; k < model_inputs(graph).size(); ++k) {
    const ValueId input = model_inputs(graph)[k];
    const Value &value = graph.value(input);
    if (k < graph.defaults().size() && graph.defaults()[k].valid()) {
      inputs.emplace_back();
      continue;
    }
    const Type &type = value.type;
    if (!type.has_shape() || type.element == ElementType::kString || is_complex(type.element))
      return diagnostics.error(
          ErrorKind::kUsage,
          fmt::format("input '{}' is {}: no random values are made for it", value.name, to_string(type)), {},
          "give it: --input " + value.name + "=@file, or --inputs FOLDER");
    std::vector<int64_t> dims;
    int64_t count = 1;
    double needed = std::max(bit_width(type.element), 1) / 8.0;
    const double most = static_cast<double>(memory_bytes());
    for (const Dim dim : *type.shape) {
      const std::optional<int64_t> d = evaluate(dim, values);
      if (!d || *d < 0)
        return diagnostics.error(ErrorKind::kUsage,
                                 fmt::format("input '{}': dimension {} has no value", value.name, dim.str()));
      dims.push_back(*d);
      needed *= static_cast<double>(*d);
      if (needed > 0 && needed <= most) count *= *d;
      if (*d == 0) count = 0;
    }
    if (needed > most)
      return diagnostics.error(ErrorKind::kIo,
                               fmt::format("input '{}' of {} needs {}, this machine has {}", value.name,
                                           to_string(Type::tensor(type.element, Shape(dims.begin(), dims.end()))),
                                           format_bytes(needed), format_bytes(most)),
                               {}, "--dim NAME=N sets a dimension");
    Random random(seed * 1000003 + k);
    const ElementType e = type.element;
    std::vector<uint8_t> bytes(storage_bytes(e, count).value_or(0));
    const int64_t rows = is_integer(e) ? indexed_rows(graph, input, 0) : 0;
    const int64_t below = std::max<int64_t>(rows > 0 ? rows : 2, 1);
    for (int64_t i = 0; i < count; ++i) {
      switch (e) {
        case ElementType::kFloat32:
          put(bytes, i, static_cast<float>(random.normal()));
          break;
        case ElementType::kFloat64:
          put(bytes, i, random.normal());
          break;
        case ElementType::kFloat16:
          put(bytes, i, float_to_half(static_cast<float>(random.normal())));
          break;
        case ElementType::kBFloat16:
          put(bytes, i, float_to_bfloat16(static_cast<float>(random.normal())));
          break;
        default: {
          if (is_float(e) && bit_width(e) == 8) {
            put(bytes, i, float_to_small_float(e, static_cast<float>(random.normal()), true));
            break;
          }
          const int64_t number = static_cast<int64_t>(random.next() % static_cast<uint64_t>(below));
          switch (bit_width(e)) {
            case 64:
              put(bytes, i, number);
              break;
            case 32:
              put(bytes, i, static_cast<int32_t>(number));
              break;
            case 16:
              put(bytes, i, static_cast<int16_t>(std::min<int64_t>(number, 32767)));
              break;
            case 8:
              put(bytes, i, static_cast<uint8_t>(std::min<int64_t>(number, 127)));
              break;
            default:
              bytes[i * bit_width(e) / 8] |= static_cast<uint8_t>((number & 1) << (i * bit_width(e) % 8));
              break;
          }
        }
      }
    }
    inputs.push_back(RuntimeValue::of(Constant::owned(e, std::move(dims), std::move(bytes))));
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
