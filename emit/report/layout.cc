#include "emit/report/layout.h"

#include <algorithm>
#include <numeric>

namespace optc {

std::vector<LayoutPoint> layered_layout(const LayoutGraph &graph) {
  constexpr int kPortal = 40;  // ranks: longer edges do not pull
  const size_t n = graph.nodes;
  std::vector<std::vector<size_t>> in(n), out(n);
  for (const auto &[from, to] : graph.edges) {
    if (from == to || from >= n || to >= n) continue;
    in[to].push_back(from);
    out[from].push_back(to);
  }
  // Ranks in topological order (Kahn); a cycle cannot occur in a Graph, what is left over would keep rank 0.
  std::vector<int> rank(n, 0);
  std::vector<size_t> degree(n), order;
  for (size_t i = 0; i < n; ++i)
    if ((degree[i] = in[i].size()) == 0) order.push_back(i);
  for (size_t at = 0; at < order.size(); ++at)
    for (size_t to : out[order[at]]) {
      rank[to] = std::max(rank[to], rank[order[at]] + 1);
      if (--degree[to] == 0) order.push_back(to);
    }
  for (size_t at = order.size(); at-- > 0;) {
    const size_t node = order[at];
    if (!in[node].empty() || out[node].empty()) continue;
    int lowest = rank[out[node][0]];
    for (size_t to : out[node]) lowest = std::min(lowest, rank[to]);
    rank[node] = std::max(0, lowest - 1);
  }
  const int ranks = n ? *std::max_element(rank.begin(), rank.end()) + 1 : 0;
  std::vector<std::vector<size_t>> rows(static_cast<size_t>(ranks));
  for (size_t node : order) rows[static_cast<size_t>(rank[node])].push_back(node);
  std::vector<double> x(n, 0);
  auto spread = [&](std::vector<size_t> &row) {
    // Keep the wanted positions, in order, at least one apart; centred on where the row wants to be.
    std::vector<double> want;
    for (size_t node : row) want.push_back(x[node]);
    double shift = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i && x[row[i]] < x[row[i - 1]] + 1) x[row[i]] = x[row[i - 1]] + 1;
      shift += x[row[i]] - want[i];
    }
    shift /= static_cast<double>(row.empty() ? 1 : row.size());
    for (size_t node : row) x[node] -= shift;
  };
  for (auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i) x[row[i]] = static_cast<double>(i) - static_cast<double>(row.size() - 1) / 2;
  for (int sweep = 0; sweep < 6; ++sweep) {
    const bool down = sweep % 2 == 0;
    for (int step = 0; step < ranks; ++step) {
      auto &row = rows[static_cast<size_t>(down ? step : ranks - 1 - step)];
      for (size_t node : row) {
        double sum = 0;
        int count = 0;
        for (size_t other : down ? in[node] : out[node]) {
          if (std::abs(rank[other] - rank[node]) > kPortal) continue;
          sum += x[other];
          ++count;
        }
        if (count) x[node] = sum / count;
      }
      std::stable_sort(row.begin(), row.end(), [&](size_t a, size_t b) { return x[a] < x[b]; });
      spread(row);
    }
  }
  std::vector<LayoutPoint> points(n);
  for (size_t i = 0; i < n; ++i) points[i] = {rank[i], x[i]};
  return points;
}

}  // namespace optc
