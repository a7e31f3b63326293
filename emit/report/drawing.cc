// The union of two graphs: which nodes stand at one place, the edges, an order, and the path of scopes of each.

#include "emit/report/drawing.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

namespace optc {
namespace {

constexpr size_t kDeepest = 24;        // scopes in scopes; deeper ones count as their parent
constexpr size_t kLongestLabel = 100;  // bytes

// Nodes that compute sizes: Shape, Size, and small integers made of such and of constants.
std::vector<bool> shape_arithmetic(const Graph &graph) {
  std::vector<bool> is(graph.node_capacity(), false);
  const auto small = [&](ValueId v) {
    const Type &t = graph.value(v).type;
    return t.is_tensor() && (is_integer(t.element) || t.element == ElementType::kBool) &&
           (!t.shape || t.shape->size() <= 1);
  };
  for (NodeId n : graph.all_nodes()) {
    const Node &node = graph.node(n);
    if (!node.regions.empty()) continue;
    if (node.op == "Shape" || node.op == "Size") {
      is[n.index] = true;
      continue;
    }
    bool all = !node.inputs.empty(), any = false;
    for (ValueId v : node.inputs) {
      if (!v.valid() || graph.is_constant(v)) continue;
      const Value &value = graph.value(v);
      const bool one = value.kind == ValueKind::kNodeOutput && is[value.producer.index];
      all = all && one;
      any = any || one;
    }
    for (ValueId v : node.outputs) all = all && (!v.valid() || small(v));
    is[n.index] = all && any;
  }
  return is;
}

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(separator, from), text.size());
    if (to > from) parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

// "m.encoder", "m.encoder.layer.0" -> "m.encoder", "layer.0": each without what it has of the one around it.
std::vector<std::string> relative(const std::vector<std::string> &scopes) {
  std::vector<std::string> path;
  std::string around;
  for (const std::string &scope : scopes) {
    if (scope.empty()) continue;
    const bool inside = !around.empty() && scope.size() > around.size() + 1 && scope.rfind(around + ".", 0) == 0;
    path.push_back(inside ? scope.substr(around.size() + 1) : scope);
    around = scope;
  }
  return path;
}

// Paths of the nodes of one graph.
class Paths {
 public:
  Paths(const Graph &graph, const NodeScopes &scopes) : graph_(graph), scopes_(scopes) {}

  std::vector<std::string> of(NodeId n) {
    const Node &node = graph_.node(n);
    std::vector<std::string> path = of_region(node.region);
    // A body's nodes are named after the scope of its owner, too: once is enough.
    std::vector<std::string> own = of_name(node.name);
    const NodeId owner = graph_.region(node.region).owner;
    if (owner.valid()) {
      const std::vector<std::string> outer = of_name(graph_.node(owner).name);
      const auto same = std::mismatch(own.begin(), own.end(), outer.begin(), outer.end()).first;
      own.erase(own.begin(), same);
    }
    path.insert(path.end(), own.begin(), own.end());
    if (!node.regions.empty()) path.push_back(label(node));
    if (path.size() > kDeepest) path.resize(kDeepest);
    return path;
  }

 private:
  static std::string label(const Node &node) {
    const size_t cut = node.name.rfind('/');
    const std::string last = cut == std::string::npos ? node.name : node.name.substr(cut + 1);
    return last.empty() ? node.op : last.find(node.op) == std::string::npos ? node.op + " " + last : last;
  }
  std::vector<std::string> of_name(const std::string &name) const {
    if (const auto it = scopes_.find(name); it != scopes_.end() && !it->second.empty()) return relative(it->second);
    std::vector<std::string> path = split(name, name.find('/') == std::string::npos ? '.' : '/');
    if (!path.empty()) path.pop_back();
    return path;
  }
  const std::vector<std::string> &of_region(RegionId region) {
    static const std::vector<std::string> kMain;
    const NodeId owner = graph_.region(region).owner;
    if (!owner.valid()) return kMain;
    const auto known = regions_.find(region.index);
    if (known != regions_.end()) return known->second;
    std::vector<std::string> path = of(owner);
    for (const auto &[name, body] : graph_.node(owner).regions)
      if (body == region) path.push_back(name);
    return regions_[region.index] = std::move(path);
  }

  const Graph &graph_;
  const NodeScopes &scopes_;
  std::map<uint32_t, std::vector<std::string>> regions_;
};

class Union {
 public:
  Union(const Graph &before, const Graph &after, const GraphDiff &diff, const NodeScopes &scopes)
      : a_(before), b_(after), diff_(diff), scopes_(scopes) {}

  Drawing run() {
    items();
    edges();
    order();
    fold();
    return std::move(drawing_);
  }

 private:
  size_t add(DrawnItem item) {
    drawing_.items.push_back(item);
    return drawing_.items.size() - 1;
  }

  // Which nodes of a group stand at one place: those of one name, and the last of either side where one of them is
  // alone.
  void pair(size_t g) {
    const DiffGroup &group = diff_.groups[g];
    std::vector<NodeId> partner(group.before.size());
    std::vector<bool> taken(group.after.size(), false);
    std::unordered_map<std::string, size_t> named;
    for (size_t i = 0; i < group.before.size(); ++i) named.emplace(a_.node(group.before[i]).name, i);
    const auto link = [&](size_t i, size_t j) {
      if (partner[i].valid() || taken[j]) return;
      partner[i] = group.after[j];
      taken[j] = true;
    };
    if (!group.before.empty() && !group.after.empty() && (group.before.size() == 1 || group.after.size() == 1))
      link(group.before.size() - 1, group.after.size() - 1);
    else
      for (size_t j = 0; j < group.after.size(); ++j)
        if (const auto it = named.find(b_.node(group.after[j]).name); it != named.end()) link(it->second, j);
    for (size_t i = 0; i < group.before.size(); ++i) {
      DrawnItem item;
      item.before = group.before[i];
      item.after = partner[i];
      item.group = g;
      add(item);
    }
    for (size_t j = 0; j < group.after.size(); ++j) {
      if (taken[j]) continue;
      DrawnItem item;
      item.after = group.after[j];
      item.group = g;
      add(item);
    }
  }

  void terminals(DrawnItem::Kind kind, const std::vector<ValueId> &before, const std::vector<ValueId> &after) {
    std::unordered_map<std::string, ValueId> named;
    for (ValueId v : after)
      if (v.valid()) named.emplace(b_.value(v).name, v);
    std::vector<bool> taken(b_.value_capacity(), false);
    for (ValueId v : before) {
      DrawnItem item;
      item.kind = kind;
      item.value_before = v;
      if (const auto it = named.find(a_.value(v).name); it != named.end() && !taken[it->second.index]) {
        item.value_after = it->second;
        taken[it->second.index] = true;
      }
      add(item);
    }
    for (ValueId v : after) {
      if (!v.valid() || taken[v.index]) continue;
      DrawnItem item;
      item.kind = kind;
      item.value_after = v;
      add(item);
    }
  }

  void items() {
    for (size_t g = 0; g < diff_.groups.size(); ++g) pair(g);
    terminals(DrawnItem::Kind::kInput, a_.region(Graph::main()).inputs, b_.region(Graph::main()).inputs);
    terminals(DrawnItem::Kind::kOutput, a_.region(Graph::main()).outputs, b_.region(Graph::main()).outputs);
    const std::vector<bool> sizes_a = shape_arithmetic(a_), sizes_b = shape_arithmetic(b_);
    for (DrawnItem &item : drawing_.items)
      item.shape_arithmetic = item.kind == DrawnItem::Kind::kNode &&
                              (!item.before.valid() || sizes_a[item.before.index]) &&
                              (!item.after.valid() || sizes_b[item.after.index]);
  }

  void edges_of(const Graph &graph, uint8_t side, NodeId DrawnItem::*node, ValueId DrawnItem::*value) {
    const DrawnSources place = drawn_sources(graph, drawing_, node, value);
    const auto edge = [&](ValueId v, size_t to) {
      const auto it = v.valid() ? place.find(v.index) : place.end();
      if (it != place.end() && it->second != to) sides_[{it->second, to}] |= side;
    };
    for (size_t i = 0; i < drawing_.items.size(); ++i) {
      const DrawnItem &item = drawing_.items[i];
      if (item.kind == DrawnItem::Kind::kOutput) edge(item.*value, i);
      if (item.kind != DrawnItem::Kind::kNode || !(item.*node).valid()) continue;
      for (ValueId v : graph.node(item.*node).inputs) edge(v, i);
      for (const auto &[name, region] : graph.node(item.*node).regions)  // what a body returns enters its owner
        for (ValueId v : graph.region(region).outputs) edge(v, i);
    }
  }
  void edges() {
    edges_of(a_, kSideBefore, &DrawnItem::before, &DrawnItem::value_before);
    edges_of(b_, kSideAfter, &DrawnItem::after, &DrawnItem::value_after);
  }

  // Where an item stands in its file: that of the first graph, else (between those) that of what its group was there.
  std::vector<std::pair<size_t, size_t>> file_order() const {
    std::vector<size_t> at_a(a_.node_capacity(), 0), at_b(b_.node_capacity(), 0);
    size_t k = 0;
    for (NodeId n : a_.all_nodes()) at_a[n.index] = ++k;
    k = 0;
    for (NodeId n : b_.all_nodes()) at_b[n.index] = ++k;
    std::vector<size_t> last(diff_.groups.size(), 0);
    for (size_t g = 0; g < diff_.groups.size(); ++g)
      for (NodeId n : diff_.groups[g].before) last[g] = std::max(last[g], at_a[n.index]);
    // What is of the second graph alone, and of no group of the first, follows what stands before it there.
    std::vector<std::pair<size_t, size_t>> in_b;
    for (const DrawnItem &item : drawing_.items)
      if (item.after.valid()) in_b.emplace_back(at_b[item.after.index], last[item.group]);
    std::sort(in_b.begin(), in_b.end());
    std::vector<size_t> follows(k + 1, 0);
    size_t seen = 0;
    for (const auto &[at, place] : in_b) {
      if (place) seen = place;
      follows[at] = seen;
    }
    std::vector<std::pair<size_t, size_t>> keys;
    for (const DrawnItem &item : drawing_.items) {
      if (item.kind != DrawnItem::Kind::kNode)
        keys.emplace_back(item.kind == DrawnItem::Kind::kInput ? 0 : SIZE_MAX, keys.size());
      else if (item.before.valid())
        keys.emplace_back(at_a[item.before.index], 0);
      else
        keys.emplace_back(last[item.group] ? last[item.group] : follows[at_b[item.after.index]],
                          at_b[item.after.index]);
    }
    return keys;
  }

  // Topological (Kahn 1962), by the order of the file where that is free; a cycle, which only the union of two orders
  // has, is cut where it comes first in the file.
  void order() {
    const size_t count = drawing_.items.size();
    const std::vector<std::pair<size_t, size_t>> key = file_order();
    std::vector<size_t> waits(count, 0), by_file(count), place(count, SIZE_MAX);
    std::vector<std::vector<size_t>> readers(count);
    for (const auto &[ends, sides] : sides_) {
      ++waits[ends.second];
      readers[ends.first].push_back(ends.second);
    }
    for (size_t i = 0; i < count; ++i) by_file[i] = i;
    std::stable_sort(by_file.begin(), by_file.end(), [&](size_t x, size_t y) { return key[x] < key[y]; });
    std::vector<size_t> rank(count);
    for (size_t k = 0; k < count; ++k) rank[by_file[k]] = k;
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < count; ++i)
      if (waits[i] == 0) ready.push(rank[i]);
    std::vector<DrawnItem> sorted;
    size_t next = 0;  // the first of the file that may not be placed yet
    while (sorted.size() < count) {
      if (ready.empty()) {
        while (place[by_file[next]] != SIZE_MAX) ++next;
        ready.push(next);
      }
      const size_t item = by_file[ready.top()];
      ready.pop();
      if (place[item] != SIZE_MAX) continue;
      place[item] = sorted.size();
      sorted.push_back(drawing_.items[item]);
      for (size_t reader : readers[item])
        if (waits[reader] && --waits[reader] == 0) ready.push(rank[reader]);
    }
    sources_beside_readers(readers, place);
    for (size_t i = 0; i < count; ++i) sorted[place[i]] = drawing_.items[i];
    drawing_.items = std::move(sorted);
    for (const auto &[ends, sides] : sides_) drawing_.edges.push_back({place[ends.first], place[ends.second], sides});
    std::sort(drawing_.edges.begin(), drawing_.edges.end(),
              [](const DrawnEdge &x, const DrawnEdge &y) { return std::pair(x.from, x.to) < std::pair(y.from, y.to); });
  }

  // What reads nothing but constants goes right before its first reader: an exporter may have written all of it at the
  // top.
  void sources_beside_readers(const std::vector<std::vector<size_t>> &readers, std::vector<size_t> &place) const {
    std::vector<bool> reads(place.size(), false);
    for (const auto &[ends, sides] : sides_) reads[ends.second] = true;
    std::vector<std::pair<std::pair<size_t, size_t>, size_t>> keys;  // place of the reader and (sources first) own one
    for (size_t i = 0; i < place.size(); ++i) {
      size_t first = SIZE_MAX;
      if (drawing_.items[i].kind == DrawnItem::Kind::kNode && !reads[i])
        for (size_t reader : readers[i]) first = std::min(first, place[reader]);
      keys.push_back(first == SIZE_MAX ? std::pair(std::pair(place[i], place.size()), i)
                                       : std::pair(std::pair(first, place[i]), i));
    }
    std::sort(keys.begin(), keys.end());
    for (size_t k = 0; k < keys.size(); ++k) place[keys[k].second] = k;
  }

  void fold() {
    Paths in_a(a_, scopes_), in_b(b_, scopes_);
    // What is new lies where everything that it was made of lies.
    std::vector<std::vector<std::string>> common(diff_.groups.size());
    for (size_t g = 0; g < diff_.groups.size(); ++g) {
      bool first = true;
      for (NodeId n : diff_.groups[g].before) {
        const std::vector<std::string> path = in_a.of(n);
        if (first)
          common[g] = path;
        else
          common[g].erase(std::mismatch(common[g].begin(), common[g].end(), path.begin(), path.end()).first,
                          common[g].end());
        first = false;
      }
    }
    std::vector<std::vector<std::string>> paths;
    std::vector<uint64_t> keys;
    std::map<std::string, uint64_t> operators;  // spread over 64 bits, so that a folder's key can be made of them
    for (const DrawnItem &item : drawing_.items) {
      std::vector<std::string> path;
      uint64_t key = 0;
      if (item.kind == DrawnItem::Kind::kNode) {
        path = item.before.valid()                        ? in_a.of(item.before)
               : !diff_.groups[item.group].before.empty() ? common[item.group]
                                                          : in_b.of(item.after);
        if (item.before.valid() || diff_.groups[item.group].before.empty())
          key = operators
                    .emplace(item.before.valid() ? a_.node(item.before).op : b_.node(item.after).op,
                             (operators.size() + 1) * 0x9E3779B97F4A7C15u)
                    .first->second;
      }
      for (std::string &label : path)
        if (label.size() > kLongestLabel) label = label.substr(0, kLongestLabel);
      paths.push_back(std::move(path));
      keys.push_back(key);
    }
    beside_readers(paths);
    fold_items(drawing_, paths, keys);
  }

  // What is made of constants alone lies where all that read it lie, if its own scope is around that.
  void beside_readers(std::vector<std::vector<std::string>> &paths) const {
    const std::vector<DrawnItem> &all = drawing_.items;
    std::vector<std::vector<size_t>> readers(all.size());
    std::vector<bool> reads(all.size(), false);
    for (const DrawnEdge &e : drawing_.edges) {
      readers[e.from].push_back(e.to);
      reads[e.to] = true;
    }
    for (size_t i = all.size(); i-- > 0;) {
      if (all[i].kind != DrawnItem::Kind::kNode || reads[i] || readers[i].empty()) continue;
      std::vector<std::string> shared = paths[readers[i][0]];
      for (size_t r : readers[i])
        shared.erase(std::mismatch(shared.begin(), shared.end(), paths[r].begin(), paths[r].end()).first, shared.end());
      if (shared.size() > paths[i].size() && std::equal(paths[i].begin(), paths[i].end(), shared.begin()))
        paths[i] = std::move(shared);
    }
  }

  const Graph &a_, &b_;
  const GraphDiff &diff_;
  const NodeScopes &scopes_;
  std::map<std::pair<size_t, size_t>, uint8_t> sides_;  // of edges, by items
  Drawing drawing_;
};

}  // namespace

DrawnSources drawn_sources(const Graph &graph, const Drawing &drawing, NodeId DrawnItem::*node,
                           ValueId DrawnItem::*value) {
  DrawnSources sources;
  for (size_t i = 0; i < drawing.items.size(); ++i) {
    const DrawnItem &item = drawing.items[i];
    if (item.kind == DrawnItem::Kind::kInput && (item.*value).valid()) sources[(item.*value).index] = i;
    if (item.kind != DrawnItem::Kind::kNode || !(item.*node).valid()) continue;
    for (ValueId v : graph.node(item.*node).outputs)
      if (v.valid()) sources[v.index] = i;
  }
  return sources;
}

Drawing draw_union(const Graph &before, const Graph &after, const GraphDiff &diff, const NodeScopes &scopes) {
  return Union(before, after, diff, scopes).run();
}

}  // namespace optc
