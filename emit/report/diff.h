#pragma once
// The difference of two graphs, and the page that draws it. The page is one HTML file: it opens offline, loads nothing, and draws both
// graphs side by side with the groups of nodes that correspond (N : M), the rewrite that made each change and the kernel it became.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"

namespace optc {

enum class DiffStatus : uint8_t { kSame, kChanged, kFused, kSplit, kRemoved, kAdded };
const char *to_string(DiffStatus status);

// Nodes of A and nodes of B that are the same computation.
struct DiffGroup {
  std::vector<NodeId> before, after;
  DiffStatus status = DiffStatus::kSame;
  std::vector<std::string> rules;    // rewrites that made it, when they are known
  std::vector<std::string> kernels;  // kernels that compute it, when it was compiled
  std::string evidence;              // "origin", "name", "structure"
};

struct GraphDiff {
  std::vector<DiffGroup> groups;
  // Groups whose before and after operators read the same: "Conv + Relu -> Conv".
  struct Pattern {
    std::string before, after, rules;
    DiffStatus status = DiffStatus::kSame;
    std::vector<size_t> groups;
  };
  std::vector<Pattern> patterns;  // most frequent first
  size_t same = 0, changed = 0, fused = 0, split = 0, removed = 0, added = 0;
};

// `after` was made of `before` in this process: nodes are linked by their origins, and `rewrites` says why.
GraphDiff diff_by_origin(const Graph &before, const Graph &after, const std::vector<RewriteRecord> &rewrites);
// Two files: by names with equal signatures, then by structure from inputs and outputs, then regions between matched values.
GraphDiff diff_graphs(const Graph &before, const Graph &after);

// "169 -> 58 nodes: 5 same, 53 fused (3 patterns), ..." and one line a pattern.
std::string diff_text(const Graph &before, const Graph &after, const GraphDiff &diff);
std::string diff_html(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title);
std::string diff_json(const Graph &before, const Graph &after, const GraphDiff &diff);

}  // namespace optc
