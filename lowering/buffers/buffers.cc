#include "lowering/buffers/buffers.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

constexpr int64_t kAlign = 64;

int64_t round_up(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Item {
  size_t placement;
  int64_t bytes;
  size_t first, last;
  int64_t offset = -1;
};

int64_t lower_bound_of(const std::vector<Item> &items, size_t steps) {
  std::vector<int64_t> live(steps + 1, 0);
  for (const Item &item : items)
    for (size_t s = item.first; s <= item.last; ++s) live[s] += item.bytes;
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

// Places the items in the given order, each into the smallest gap that holds it; returns the arena's size.
int64_t place(std::vector<Item> &items, const std::vector<size_t> &order) {
  std::vector<size_t> placed;  // by offset
  int64_t total = 0;
  for (size_t i : order) {
    Item &item = items[i];
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (size_t j : placed) {
      const Item &other = items[j];
      if (other.last < item.first || item.last < other.first) continue;
      const int64_t gap = other.offset - at;
      if (gap >= item.bytes && gap < best_gap) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.offset + other.bytes);
    }
    item.offset = best >= 0 ? best : at;
    total = std::max(total, item.offset + item.bytes);
    const auto where = std::find_if(placed.begin(), placed.end(), [&](size_t j) { return items[j].offset > item.offset; });
    placed.insert(where, i);
  }
  return total;
}

class Placer {
 public:
  explicit Placer(Program &program) : p_(program), uses_(program), root_(program.buffers.size()) {
    for (size_t i = 0; i < root_.size(); ++i) {
      BufferId b(i);
      while (p_.buffer(b).alias.valid()) b = p_.buffer(b).alias;
      root_[i] = b;
    }
  }

  void run() {
    lifetimes();
    in_place();
    p_.placements.clear();
    std::vector<Item> items;
    bool constant = true;
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer &b = p_.buffers[i];
      if ((b.kind != BufferKind::kTemporary && b.kind != BufferKind::kScratch) || b.alias.valid() || !touched_[i]) continue;
      Placement placement;
      placement.buffer = BufferId(i);
      placement.bytes = bytes_of(b);
      placement.first = first_[i];
      placement.last = last_[i];
      placement.offset = kDimOverflow;
      constant &= placement.bytes.is_constant() && placement.bytes.value() < kDimOverflow;
      p_.placements.push_back(placement);
    }
    if (!constant) {
      p_.arena_bytes = kDimOverflow;
      p_.lower_bound_bytes = kDimOverflow;
      return;
    }
    for (size_t i = 0; i < p_.placements.size(); ++i)
      items.push_back({i, round_up(p_.placements[i].bytes.value()), p_.placements[i].first, p_.placements[i].last});
    const int64_t bound = lower_bound_of(items, steps_);
    std::vector<size_t> order(items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<Item> best = items;
    int64_t best_total = INT64_MAX;
    auto attempt = [&](auto before) {
      std::vector<size_t> o = order;
      std::stable_sort(o.begin(), o.end(), [&](size_t a, size_t b) { return before(items[a], items[b]); });
      std::vector<Item> trial = items;
      const int64_t total = place(trial, o);
      if (total < best_total) {
        best_total = total;
        best = std::move(trial);
      }
      return best_total <= bound;
    };
    auto span = [](const Item &i) { return static_cast<int64_t>(i.last - i.first + 1); };
    bool done = attempt([](const Item &a, const Item &b) { return a.bytes > b.bytes; }) ||
                attempt([&](const Item &a, const Item &b) { return a.bytes * span(a) > b.bytes * span(b); }) ||
                attempt([&](const Item &a, const Item &b) { return span(a) > span(b); }) ||
                attempt([](const Item &a, const Item &b) { return a.first < b.first; });
    // Perturbed orders: sizes weighted by a fixed pseudo-random factor, the same in every run.
    uint64_t state = 88172645463325252ull;
    const int rounds = items.size() > 2000 ? 4 : items.size() > 400 ? 60 : 400;
    for (int round = 0; !done && round < rounds; ++round) {
      std::vector<double> weight(items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        weight[i] = static_cast<double>(items[i].bytes) * (0.5 + static_cast<double>(state >> 40) / (1 << 24));
      }
      done = attempt([&](const Item &a, const Item &b) {
        return weight[static_cast<size_t>(&a - items.data())] > weight[static_cast<size_t>(&b - items.data())];
      });
    }
    for (const Item &item : best) p_.placements[item.placement].offset = item.offset;
    p_.arena_bytes = items.empty() ? 0 : best_total;
    p_.lower_bound_bytes = bound;
  }

 private:
  static Dim bytes_of(const Buffer &b) {
    const Dim count = storage_count(b);
    const int bits = bit_width(b.element());
    return bits >= 8 ? count * Dim(bits / 8) : ceil_div(count * Dim(bits), 8);
  }

  // Control flow counts as one step; what its bodies use lives over the whole of it.
  void lifetimes() {
    steps_ = p_.order.size();
    first_.assign(p_.buffers.size(), SIZE_MAX);
    last_.assign(p_.buffers.size(), 0);
    touched_.assign(p_.buffers.size(), false);
    auto touch = [&](BufferId b, size_t step) {
      const size_t i = root_[b.index].index;
      touched_[i] = true;
      first_[i] = std::min(first_[i], step);
      last_[i] = std::max(last_[i], step);
    };
    for (size_t step = 0; step < p_.order.size(); ++step) {
      for (BufferId b : reads(p_, p_.kernel(p_.order[step]))) touch(b, step);
      for (BufferId b : writes(p_, p_.kernel(p_.order[step]))) touch(b, step);
    }
  }

  // Result of step s into the bytes of an operand whose last use is s.
  void in_place() {
    for (size_t step = 0; step < p_.order.size(); ++step) {
      Kernel &kernel = p_.kernel(p_.order[step]);
      const LoopNest *nest = kernel.nest();
      if (!nest || nest->sequential || !strategy_allows(kernel)) continue;
      const Stage &last = nest->stages.back();
      if (last.outputs.size() != 1 || !last.outputs[0].buffer.valid() || last.outputs[0].combine != Combine::kStore) continue;
      const StageOutput &out = last.outputs[0];
      Buffer &result = p_.buffer(out.buffer);
      if (result.kind != BufferKind::kTemporary || result.alias.valid() || uses_.writers[out.buffer.index].size() != 1 ||
          first_[out.buffer.index] != step)
        continue;
      for (BufferId operand : reads(p_, kernel)) {
        const BufferId root = root_[operand.index];
        const Buffer &source = p_.buffer(operand), &place = p_.buffer(root);
        if (place.kind != BufferKind::kTemporary || uses_.is_model_output(operand) || uses_.is_model_output(root) ||
            last_[root.index] != step || source.element() != result.element() || !whole(operand) ||
            !(bytes_of(place) == bytes_of(result)))
          continue;
        if (!read_only_where_written(*nest, root, out)) continue;
        // The result becomes a view of the operand's place, whose lifetime goes on.
        result.alias = root;
        result.alias_offset = 0;
        last_[root.index] = std::max(last_[root.index], last_[out.buffer.index]);
        touched_[out.buffer.index] = false;
        for (BufferId &r : root_)
          if (r == out.buffer) r = root;
        break;
      }
    }
  }

  // A view of all of its root, from its start.
  bool whole(BufferId b) const {
    for (; p_.buffer(b).alias.valid(); b = p_.buffer(b).alias)
      if (!p_.buffer(b).alias_offset.is(0)) return false;
    return true;
  }

  static bool strategy_allows(const Kernel &kernel) { return kernel.strategy.parameter("in_place", 1) != 0; }

  bool read_only_where_written(const LoopNest &nest, BufferId root, const StageOutput &out) {
    const Dim at = linear_offset(p_.buffer(out.buffer), out.index);
    for (size_t s = 0; s < nest.stages.size(); ++s) {
      for (const StageOutput &o : nest.stages[s].outputs) {
        std::vector<ScalarId> loads;
        for (ScalarId id : {o.value, o.initial, o.condition})
          if (id.valid()) collect_loads(p_, id, loads);
        for (ScalarId id : loads) {
          const Scalar &load = p_.scalars.at(id);
          if (root_[load.buffer.index] != root) continue;
          if (s + 1 != nest.stages.size()) return false;
          if (!(linear_offset(p_.buffer(load.buffer), load.index) == at)) return false;
        }
      }
    }
    return true;
  }

  Program &p_;
  Uses uses_;
  std::vector<BufferId> root_;
  std::vector<size_t> first_, last_;
  std::vector<bool> touched_;
  size_t steps_ = 0;
};

}  // namespace

void place_buffers(Program &program) { Placer(program).run(); }

}  // namespace optc
