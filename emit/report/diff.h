#pragma once
// The difference of two graphs, and the page that draws it. The page is one HTML file: it opens offline, loads nothing,
// and draws both graphs side by side with the groups of nodes that correspond (N : M), the rewrite that made each
// change and the kernel it became.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"
#include "ir/program/program.h"

namespace optc {

enum class DiffStatus : uint8_t { kSame, kChanged, kFused, kSplit, kRemoved, kAdded };
const char *to_string(DiffStatus status);

// Nodes of A and nodes of B that are the same computation.
struct DiffGroup {
  std::vector<NodeId> before, after;
  DiffStatus status = DiffStatus::kSame;
  std::vector<std::string> rules;    // rewrites that made it, when they are known
  std::vector<std::string> kernels;  // kernels that compute it, when it was compiled
  std::string evidence;              // what links them: "origin", "name", "structure", "region"; empty: nothing
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

// What an exporter noted at the nodes of the second file, by node name: the nodes of the first file that each came
// from, and the rules that made it.
struct Provenance {
  std::unordered_map<std::string, std::vector<std::string>> origin, rules;
};

using RulesByOrigin = std::unordered_map<uint32_t, std::vector<std::string>>;
// The rules that removed or created nodes of each origin, in the order of their first use.
RulesByOrigin rules_by_origin(const std::vector<RewriteRecord> &rewrites);

// `after` was made of `before` in this process: nodes are linked by their origins, and `rewrites` says why.
GraphDiff diff_by_origin(const Graph &before, const Graph &after, const std::vector<RewriteRecord> &rewrites);
// Two files: by what the exporter noted, by names with equal operators, then by structure from the inputs on, then
// regions between matched nodes.
GraphDiff diff_graphs(const Graph &before, const Graph &after, const Provenance &noted = {});
// Names the kernels that compute each group of a diff_by_origin whose `after` was lowered to `program`.
void name_kernels(GraphDiff &diff, const Graph &after, const Program &program);

// "169 → 58 nodes: 5 same, 53 fused, ..." and one line a pattern, at most `lines` of them (0: all).
std::string diff_text(const Graph &before, const Graph &after, const GraphDiff &diff, size_t lines = 0);
std::string diff_html(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title);
std::string diff_json(const Graph &before, const Graph &after, const GraphDiff &diff);

}  // namespace optc
