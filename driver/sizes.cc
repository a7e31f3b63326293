#include "driver/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>
#include <tuple>

#include "ir/dim/range.h"
#include "ir/graph/constraint.h"
#include "ops/build.h"

namespace optc {
namespace {

constexpr size_t kMostConditions = 4000;
constexpr int64_t kMostIndices = 1 << 16;
constexpr int kRounds = 24;  // of the search; each lowers the cost, so far more are never needed

// What a search tries, in order of preference: powers of two and their multiples first (strides, windows, heads), then
// every small number. The second set begins with others.
std::vector<int64_t> common_sizes(int set) {
  std::vector<int64_t> list;
  if (set == 1) list = {64, 96, 48, 128, 24, 160};
  for (const int64_t size : std::initializer_list<int64_t>{
           8,   16,  32,  64,  128, 48,   96,   24,   12,   4,    2,    1,    3,     5,    6,
           7,   9,   10,  20,  40,  80,   160,  112,  192,  224,  256,  320,  384,   400,  448,
           512, 576, 640, 800, 960, 1024, 1280, 1600, 2048, 3000, 4096, 8000, 16000, 16384})
    if (std::find(list.begin(), list.end(), size) == list.end()) list.push_back(size);
  for (int64_t n = 11; n <= 128; ++n)
    if (std::find(list.begin(), list.end(), n) == list.end()) list.push_back(n);
  return list;
}

// The constant whose elements `id` holds, seen through operators that only move them; nullptr: none.
const Constant *moved_constant(const Graph &graph, ValueId id) {
  static const std::set<std::string_view> kMoves = {"Cast",    "Identity",  "Reshape", "Squeeze", "Unsqueeze",
                                                    "Flatten", "Transpose", "Expand",  "Tile"};
  while (id.valid() && graph.value(id).kind == ValueKind::kNodeOutput) {
    const Node &node = graph.node(graph.value(id).producer);
    if (!kMoves.count(node.op)) return nullptr;
    id = node.input(0);
  }
  return graph.constant(id);
}

// How long an axis must be to have all of `indices`, which may count from its end; 0: not known.
int64_t length_for(const Constant *indices) {
  int64_t length = 0;
  if (!indices || !is_integer(indices->type())) return 0;
  for (int64_t i = 0; i < std::min(indices->count(), kMostIndices); ++i) {
    const int64_t index = indices->as_int64(i);
    length = std::max(length, index < 0 ? -index : index + 1);
  }
  return length;
}

}  // namespace

SizeChooser::SizeChooser(const Graph &graph) : dims_(graph.dims()) {
  for (const ValueId input : graph.region(Graph::main()).inputs) {
    const Type &type = graph.value(input).type;
    if (!type.has_shape()) continue;
    for (int axis = 0; axis < type.rank(); ++axis) {
      std::vector<const DimSymbol *> here;
      collect_symbols((*type.shape)[axis], here);
      for (const DimSymbol *symbol : here) {
        const size_t at = std::find(symbols_.begin(), symbols_.end(), symbol) - symbols_.begin();
        if (at == symbols_.size()) {
          symbols_.push_back(symbol);
          in_front_.push_back(true);
        }
        if (axis != 0 || type.rank() == 1) in_front_[at] = false;
      }
    }
  }
  if (symbols_.empty()) return;
  add_index_conditions(graph);
  // A model that cannot be built is refused later, with the reason.
  Diagnostics quiet;
  const Result<Program> program = build_program(graph, quiet);
  if (!program) return;
  for (const DimConstraint &c : program->constraints) add_condition({c.left, c.right, false, c.or_one, c.where, {}});
  std::set<const DimNode *> seen;
  for (const Buffer &buffer : program->buffers) {
    if (!buffer.type.has_shape()) continue;
    for (const Dim dim : buffer.shape())
      if (!dim.is_constant() && seen.insert(dim.node()).second)
        add_condition({dim, 1, true, false, "tensor '" + buffer.name + "'", {}});
  }
}

// Indices that the model itself holds must lie in the axis that they index.
void SizeChooser::add_index_conditions(const Graph &graph) {
  static const std::set<std::string_view> kIndexing = {"Gather", "GatherElements", "ScatterElements", "Scatter"};
  for (const NodeId id : graph.all_nodes()) {
    const Node &node = graph.node(id);
    if (!kIndexing.count(node.op)) continue;
    const Type &table = graph.value(node.input(0)).type;
    const int64_t length = length_for(moved_constant(graph, node.input(1)));
    if (length == 0 || !table.has_shape()) continue;
    int64_t axis = node.int_or("axis", 0);
    if (axis < 0) axis += table.rank();
    if (axis >= 0 && axis < table.rank())
      add_condition({(*table.shape)[axis], length, true, false, graph.describe(id), {}});
  }
}

// Keeps a condition on the symbols of inputs alone.
void SizeChooser::add_condition(Condition condition) {
  if (conditions_.size() >= kMostConditions) return;
  std::vector<const DimSymbol *> used;
  collect_symbols(condition.left, used);
  collect_symbols(condition.right, used);
  for (const DimSymbol *symbol : used) {
    const size_t at = std::find(symbols_.begin(), symbols_.end(), symbol) - symbols_.begin();
    if (at == symbols_.size()) return;
    condition.symbols.push_back(at);
  }
  if (!used.empty()) conditions_.push_back(std::move(condition));
}

bool SizeChooser::holds(const Condition &condition, const Assignment &sizes) const {
  const DimValues values = [&](const DimSymbol &symbol) -> std::optional<int64_t> {
    for (const size_t i : condition.symbols)
      if (symbols_[i] == &symbol) return sizes[i];
    return std::nullopt;
  };
  const auto left = evaluate(condition.left, values), right = evaluate(condition.right, values);
  if (!left || !right) return false;  // a divisor that is not positive
  if (condition.at_least) return *left >= *right;
  return constraint_holds(*left, *right, condition.or_one);
}

// Descent over the number of conditions that do not hold: one symbol at a time, or several to the same value.
class SizeChooser::Search {
 public:
  Search(const SizeChooser &chooser, std::vector<bool> fixed, int64_t preferred, int set)
      : chooser_(chooser), fixed_(std::move(fixed)), set_(set), candidates_{preferred} {
    for (const int64_t size : common_sizes(set))
      if (size != preferred) candidates_.push_back(size);
  }

  Assignment run(Assignment sizes) {
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<size_t> bad = failing(sizes);
      if (bad.empty()) break;
      const Assignment next = best_move(sizes, bad);
      if (next == sizes) break;
      sizes = next;
    }
    return sizes;
  }

  std::vector<size_t> failing(const Assignment &sizes) const {
    std::vector<size_t> bad;
    for (size_t i = 0; i < chooser_.conditions_.size(); ++i)
      if (!chooser_.holds(chooser_.conditions_[i], sizes)) bad.push_back(i);
    return bad;
  }

 private:
  Assignment best_move(const Assignment &sizes, const std::vector<size_t> &bad) const {
    std::vector<size_t> free;
    for (const size_t i : bad)
      for (const size_t s : chooser_.conditions_[i].symbols)
        if (!fixed_[s] && std::find(free.begin(), free.end(), s) == free.end()) free.push_back(s);
    // All that are not a batch together, then each alone, then each pair.
    std::vector<std::vector<size_t>> groups(1);
    for (const size_t s : free)
      if (!chooser_.in_front_[s]) groups[0].push_back(s);
    if (groups[0].size() < 2) groups.clear();
    for (const size_t s : free) groups.push_back({s});
    for (size_t i = 0; i < free.size() && free.size() <= 6; ++i)
      for (size_t j = i + 1; j < free.size(); ++j) groups.push_back({free[i], free[j]});
    Assignment best = sizes;
    size_t least = bad.size();
    const auto consider = [&](const std::vector<size_t> &group, int64_t size, int64_t second) {
      Assignment tried = sizes;
      for (size_t i = 0; i < group.size(); ++i) {
        tried[group[i]] = i % 2 ? second : size;
        if (!allowed(group[i], tried[group[i]])) return;
      }
      if (const size_t cost = failing_below(tried, least); cost < least) {
        least = cost;
        best = tried;
      }
    };
    for (const auto &group : groups)
      for (const int64_t size : candidates_) {
        // Unequal heights and widths show what equal ones hide; the second set has them.
        if (set_ == 1 && group.size() > 1) consider(group, size, 2 * size);
        consider(group, size, size);
        if (least == 0) return best;
      }
    return best;
  }
  bool allowed(size_t s, int64_t size) const {
    const DimSymbol &symbol = *chooser_.symbols_[s];
    return size >= symbol.min && size <= symbol.max && size % std::max<int64_t>(symbol.multiple, 1) == 0;
  }
  // Counts no further than `limit`.
  size_t failing_below(const Assignment &sizes, size_t limit) const {
    size_t cost = 0;
    for (size_t i = 0; i < chooser_.conditions_.size() && cost < limit; ++i)
      cost += !chooser_.holds(chooser_.conditions_[i], sizes);
    return cost;
  }

  const SizeChooser &chooser_;
  const std::vector<bool> fixed_;
  const int set_;
  std::vector<int64_t> candidates_;
};

Result<SizeByName> SizeChooser::choose(const SizeByName &given, int set, int attempt, Diagnostics &diagnostics) const {
  // By attempt: sizes of the first and of the second set, for symbols in front and for others.
  static constexpr int64_t kFront[kAttempts][2] = {{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 1}, {1, 1}};
  static constexpr int64_t kOther[kAttempts][2] = {{8, 13}, {32, 64}, {64, 96}, {224, 256}, {16, 48}, {1, 2}};
  Assignment sizes;
  std::vector<bool> fixed(symbols_.size(), false);
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const DimSymbol &symbol = *symbols_[i];
    int64_t value = in_front_[i] ? kFront[attempt][set] : kOther[attempt][set];
    if (symbol.multiple > 1) value = std::max<int64_t>(1, value / symbol.multiple + set) * symbol.multiple;
    value = std::clamp(value, symbol.min, symbol.max);
    if (const auto it = given.find(symbol.name); it != given.end()) {
      value = it->second;
      fixed[i] = true;
    }
    if (value < symbol.min || value > symbol.max)
      return diagnostics.error(
          ErrorKind::kUsage, fmt::format("dim '{}' is {}, the model takes {}", symbol.name, value, range_text(symbol)));
    sizes.push_back(value);
  }
  Search search(*this, fixed, kOther[attempt][set], set);
  sizes = search.run(std::move(sizes));
  // Tensors may be empty by design (a cache without a past); what the operators state must hold.
  for (const size_t i : search.failing(sizes)) {
    const Condition &c = conditions_[i];
    if (c.at_least) continue;
    std::string at;
    for (const size_t s : c.symbols) at += fmt::format("{}{}={}", at.empty() ? "" : " ", symbols_[s]->name, sizes[s]);
    const bool all = std::all_of(c.symbols.begin(), c.symbols.end(), [&](size_t s) { return fixed[s]; });
    return diagnostics.error(ErrorKind::kUsage,
                             fmt::format("{}: the model needs {} = {}, with {} it does not hold",
                                         all ? "the sizes given do not fit" : "no sizes that fit were found",
                                         c.left.str(), c.right.str(), at),
                             c.where, "--dim NAME=N sets a dimension");
  }
  SizeByName result;
  for (size_t i = 0; i < symbols_.size(); ++i) result[symbols_[i]->name] = sizes[i];
  for (const auto &[name, value] : given) result.emplace(name, value);
  return result;
}

}  // namespace optc
