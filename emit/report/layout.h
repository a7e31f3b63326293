#pragma once
// Layered layout of a graph, computed where the page is written, so that the browser only draws. Longest-path ranks, sources pulled down
// to their readers, a few barycentre sweeps; edges over many ranks become portals and bend no layout. Deterministic and near linear.

#include <cstddef>
#include <vector>

namespace optc {

struct LayoutGraph {
  size_t nodes = 0;
  std::vector<std::pair<size_t, size_t>> edges;  // from, to
};
struct LayoutPoint {
  int rank = 0;    // row
  double x = 0;    // column, in node widths
};
std::vector<LayoutPoint> layered_layout(const LayoutGraph &graph);

}  // namespace optc
