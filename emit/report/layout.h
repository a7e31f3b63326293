#pragma once
// Layered layout of a graph, computed where the page is written, so that the browser only draws (Sugiyama, Tagawa, Toda
// 1981). Longest-path ranks, sources pulled down to their readers, barycentre sweeps for the order inside a rank; the
// places inside a rank are the least-squares solution that keeps the order and the distances (isotonic regression, so
// nothing drifts). Long edges get a lane of their own between the boxes; edges over very many ranks, or of a value that
// very many read, become portals: they are drawn as stubs and bend no layout. Deterministic and near linear.

#include <cstddef>
#include <utility>
#include <vector>

namespace optc {

struct LayoutGraph {
  size_t nodes = 0;
  std::vector<std::pair<size_t, size_t>> edges;  // from, to
};
struct LayoutPoint {
  int rank = 0;  // row
  double x = 0;  // of the middle, in node widths; two nodes of a row are at least 1 apart
};
struct LayoutRoute {
  bool portal = false;
  std::vector<double> lane;  // x where the edge crosses the ranks between its ends, from above
};
struct Layout {
  std::vector<LayoutPoint> points;  // of the nodes
  std::vector<LayoutRoute> routes;  // of the edges
};
Layout layered_layout(const LayoutGraph &graph);

}  // namespace optc
