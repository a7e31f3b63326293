#include "emit/report/layout.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace optc {
namespace {

constexpr int kPortalRanks = 40;       // longer edges are portals
constexpr size_t kPortalReaders = 16;  // and edges of a value with more readers, unless they are short
constexpr double kLane = 0.3;          // distance that an edge's lane keeps

// Nodes, and behind them the points where long edges cross ranks.
class Layered {
 public:
  explicit Layered(const LayoutGraph &graph) : graph_(graph), n_(graph.nodes), in_(n_), out_(n_), rank_(n_, 0) {
    for (const auto &[from, to] : graph.edges) {
      if (from == to || from >= n_ || to >= n_) continue;
      in_[to].push_back(from);
      out_[from].push_back(to);
    }
  }

  Layout run() {
    const std::vector<size_t> order = ranks();
    int last = -1;
    for (int r : rank_) last = std::max(last, r);
    rows_.resize(static_cast<size_t>(last + 1));
    lanes();
    above_.resize(rank_.size());
    below_.resize(rank_.size());
    for (const auto &[from, to] : links_) {
      above_[to].push_back(from);
      below_[from].push_back(to);
    }
    for (size_t node : order) rows_[row(node)].push_back(node);
    for (size_t lane = n_; lane < rank_.size(); ++lane) rows_[row(lane)].push_back(lane);
    x_.assign(rank_.size(), 0);
    for (auto &members : rows_)
      for (size_t i = 0; i < members.size(); ++i)
        x_[members[i]] = static_cast<double>(i) - static_cast<double>(members.size() - 1) / 2;
    for (int sweep = 0; sweep < 8; ++sweep) sweep_rows(sweep % 2 == 0, true);
    for (int sweep = 0; sweep < 24; ++sweep) sweep_rows(sweep % 2 == 0, false);
    Layout layout;
    layout.points.resize(n_);
    for (size_t i = 0; i < n_; ++i) layout.points[i] = {rank_[i], x_[i]};
    layout.routes.resize(graph_.edges.size());
    for (size_t e = 0; e < graph_.edges.size(); ++e) {
      const auto &[from, to] = graph_.edges[e];
      if (from >= n_ || to >= n_) continue;
      layout.routes[e].portal = portal(from, to);
      if (layout.routes[e].portal) continue;
      const auto chain = chain_.find(from);
      for (int r = rank_[from] + 1; chain != chain_.end() && r < rank_[to]; ++r)
        layout.routes[e].lane.push_back(x_[chain->second + static_cast<size_t>(r - rank_[from] - 1)]);
    }
    return layout;
  }

 private:
  size_t row(size_t node) const { return static_cast<size_t>(rank_[node]); }
  bool portal(size_t from, size_t to) const {
    const int span = rank_[to] - rank_[from];
    return span > kPortalRanks || (span > 2 && out_[from].size() > kPortalReaders);
  }

  // Longest path in topological order (Kahn); what a cycle would leave over keeps rank 0.
  std::vector<size_t> ranks() {
    std::vector<size_t> degree(n_), order;
    for (size_t i = 0; i < n_; ++i)
      if ((degree[i] = in_[i].size()) == 0) order.push_back(i);
    for (size_t at = 0; at < order.size(); ++at)
      for (size_t to : out_[order[at]]) {
        rank_[to] = std::max(rank_[to], rank_[order[at]] + 1);
        if (--degree[to] == 0) order.push_back(to);
      }
    for (size_t at = order.size(); at-- > 0;) {
      const size_t node = order[at];
      if (!in_[node].empty() || out_[node].empty()) continue;
      int lowest = rank_[out_[node][0]];
      for (size_t to : out_[node]) lowest = std::min(lowest, rank_[to]);
      rank_[node] = std::max(0, lowest - 1);
    }
    return order;
  }

  // One chain of lane points a value: all readers below share it.
  void lanes() {
    for (size_t from = 0; from < n_; ++from) {
      int deepest = rank_[from] + 1;
      for (size_t to : out_[from])
        if (!portal(from, to)) deepest = std::max(deepest, rank_[to]);
      const size_t first = rank_.size();
      for (int r = rank_[from] + 1; r < deepest; ++r) {
        rank_.push_back(r);
        links_.emplace_back(r == rank_[from] + 1 ? from : rank_.size() - 2, rank_.size() - 1);
      }
      if (deepest > rank_[from] + 1) chain_.emplace(from, first);
      for (size_t to : out_[from]) {
        if (portal(from, to)) continue;
        const int span = rank_[to] - rank_[from];
        links_.emplace_back(span > 1 ? first + static_cast<size_t>(span - 2) : from, to);
      }
    }
  }

  double gap(size_t left, size_t right) const {
    if (left < n_ && right < n_) return 1;
    return left < n_ || right < n_ ? 0.5 + kLane / 2 : kLane;
  }

  void sweep_rows(bool down, bool reorder) {
    const size_t count = rows_.size();
    for (size_t step = 0; step < count; ++step) {
      std::vector<size_t> &members = rows_[down ? step : count - 1 - step];
      std::vector<double> want(members.size());
      for (size_t i = 0; i < members.size(); ++i) {
        double sum = 0, weight = 0;
        auto pull = [&](const std::vector<size_t> &others) {
          for (size_t other : others) sum += x_[other], weight += 1;
        };
        if (!reorder || down) pull(above_[members[i]]);
        if (!reorder || !down) pull(below_[members[i]]);
        want[i] = weight > 0 ? sum / weight : x_[members[i]];
        x_[members[i]] = want[i];
      }
      if (reorder) std::stable_sort(members.begin(), members.end(), [&](size_t a, size_t b) { return x_[a] < x_[b]; });
      place(members);
    }
  }

  // Least squares with the order and the gaps kept: pool adjacent violators.
  void place(const std::vector<size_t> &members) {
    struct Block {
      double sum, weight;
      size_t count;
    };
    std::vector<Block> blocks;
    std::vector<double> offset(members.size(), 0);
    for (size_t i = 0; i < members.size(); ++i) {
      if (i) offset[i] = offset[i - 1] + gap(members[i - 1], members[i]);
      // A lane is kept straight before a box is centred.
      const double weight =
          members[i] >= n_ ? 4 : 1 + static_cast<double>(std::min<size_t>(above_[members[i]].size(), 2));
      blocks.push_back({(x_[members[i]] - offset[i]) * weight, weight, 1});
      while (blocks.size() > 1 && blocks[blocks.size() - 2].sum / blocks[blocks.size() - 2].weight >
                                      blocks.back().sum / blocks.back().weight) {
        const Block top = blocks.back();
        blocks.pop_back();
        blocks.back().sum += top.sum;
        blocks.back().weight += top.weight;
        blocks.back().count += top.count;
      }
    }
    size_t at = 0;
    for (const Block &block : blocks)
      for (size_t k = 0; k < block.count; ++k, ++at) x_[members[at]] = block.sum / block.weight + offset[at];
  }

  const LayoutGraph &graph_;
  size_t n_;
  std::vector<std::vector<size_t>> in_, out_;
  std::vector<int> rank_;                         // nodes, then lane points
  std::map<size_t, size_t> chain_;                // node -> its first lane point
  std::vector<std::pair<size_t, size_t>> links_;  // between neighbouring ranks
  std::vector<std::vector<size_t>> above_, below_, rows_;
  std::vector<double> x_;
};

}  // namespace

Layout layered_layout(const LayoutGraph &graph) { return Layered(graph).run(); }

}  // namespace optc
