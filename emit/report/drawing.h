#pragma once
// What the page draws: the union of both graphs, so that both panes share one arrangement, and the folders that its
// nodes lie in, so that a large graph can be read folded. Where things stand is decided where it is drawn
// (page/layout.js): it depends on which folders are open.

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "emit/report/diff.h"

namespace optc {

// A node of either graph, or two that stand at one place: a node and what it became, the last of several and the one
// that they became. An input or output of the model is an item, too.
struct DrawnItem {
  enum class Kind : uint8_t { kNode, kInput, kOutput };
  Kind kind = Kind::kNode;
  NodeId before, after;               // kNode; invalid: that side has none here
  ValueId value_before, value_after;  // kInput, kOutput; likewise
  size_t group = SIZE_MAX;            // kNode: of GraphDiff::groups
  size_t folder = 0;                  // of Drawing::folders, the innermost
  bool shape_arithmetic = false;      // computes sizes, on each side where it is
};

inline constexpr uint8_t kSideBefore = 1, kSideAfter = 2;
struct DrawnEdge {
  size_t from = 0, to = 0;  // items
  uint8_t sides = 0;        // kSideBefore, kSideAfter: which graphs have it
};

struct DrawnFolder {
  // kScope: what names or the exporter's notes say belongs together, or a body of an If or a loop. kSeries: folders
  // that are alike, one behind another. kRepeat: one of them, where no name says so. kPart: a stretch of a graph that
  // nothing divides.
  enum class Kind : uint8_t { kWhole, kScope, kSeries, kRepeat, kPart };
  Kind kind = Kind::kScope;
  size_t parent = 0;  // of Drawing::folders; before this one. The first is the whole
  std::string label;
};
const char *to_string(DrawnFolder::Kind kind);

struct Drawing {
  std::vector<DrawnItem> items;  // in an order in which they can be computed, but where the two graphs contradict
  std::vector<DrawnEdge> edges;  // by their ends
  std::vector<DrawnFolder> folders;
};

// By the number of a value of one of the two graphs: the item that gives it, a node or an input. `node` and `value` say
// which graph: before and value_before, or after and value_after.
using DrawnSources = std::unordered_map<uint32_t, size_t>;
DrawnSources drawn_sources(const Graph &graph, const Drawing &drawing, NodeId DrawnItem::*node,
                           ValueId DrawnItem::*value);

Drawing draw_union(const Graph &before, const Graph &after, const GraphDiff &diff, const NodeScopes &scopes);

// folders.cc: sets the folders of the drawing; paths: one for each item, from the outermost scope; keys: equal for
// items that look the same, 0: does not count.
void fold_items(Drawing &drawing, const std::vector<std::vector<std::string>> &paths,
                const std::vector<uint64_t> &keys);

}  // namespace optc
