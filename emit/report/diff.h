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
#include "ir/program/lowering_step.h"
#include "ir/program/program.h"

namespace optc {

enum class DiffStatus : uint8_t { kSame, kChanged, kFused, kSplit, kRemoved, kAdded };
const char *to_string(DiffStatus status);

// What differs where the nodes correspond, or of the model as a whole. One edit of a model is one change: what follows
// from it (the types behind a changed attribute, the readers of a changed weight) is not told again.
enum class ChangeKind : uint8_t { kOpset, kInput, kOutput, kOperator, kAttribute, kEdge, kType, kWeight };
const char *to_string(ChangeKind kind);
inline constexpr ChangeKind kChangeKinds[] = {ChangeKind::kOpset,    ChangeKind::kInput,     ChangeKind::kOutput,
                                              ChangeKind::kOperator, ChangeKind::kAttribute, ChangeKind::kEdge,
                                              ChangeKind::kType,     ChangeKind::kWeight};
constexpr uint32_t bit_of(ChangeKind kind) { return 1u << static_cast<uint32_t>(kind); }

struct DiffChange {
  static constexpr size_t kModel = SIZE_MAX;
  ChangeKind kind = ChangeKind::kAttribute;
  size_t group = kModel;             // of GraphDiff::groups
  std::string node, node_after, op;  // names and operator; empty: of the model
  std::string what;                  // "attribute strides", "weight 'w'", "input 1", "opset ai.onnx"
  std::string from, to;              // what stood there and what stands there
  std::string note;                  // more, for a reader
  int64_t differing = 0, count = 0;  // kWeight of one type and shape: elements that differ, of how many
  double largest = 0;                // the largest difference of two numbers among them
};

// Nodes of A and nodes of B that are the same computation.
struct DiffGroup {
  std::vector<NodeId> before, after;
  DiffStatus status = DiffStatus::kSame;
  std::vector<std::string> rules;    // rewrites that made it, when they are known
  std::vector<std::string> kernels;  // kernels that compute it, when it was compiled
  // Why: "origin", "structure", "weights", "name", "neighbours", "course", "region"; of one side "constant", "neutral"
  // or nothing.
  std::string evidence;
  std::string note;    // "neutral: multiplied by 1"
  uint32_t kinds = 0;  // kChanged: of what kinds its changes are, bits of bit_of()
};

struct GraphDiff {
  std::vector<DiffGroup> groups;
  // Groups whose before and after operators read the same: "Conv + Relu -> Conv".
  struct Pattern {
    std::string before, after, rules, note;
    DiffStatus status = DiffStatus::kSame;
    std::vector<size_t> groups;
  };
  std::vector<Pattern> patterns;    // most frequent first
  std::vector<DiffChange> changes;  // by kind, in the order of the second graph
  size_t same = 0, changed = 0, fused = 0, split = 0, removed = 0, added = 0;
  bool equal() const { return patterns.empty() && changes.empty(); }
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
// Two files, as read_graph reads them (types may be left open): by what the exporter noted, by structure and constants,
// by names where what is known already says that they mean the same, by neighbours, then regions between matched nodes.
GraphDiff diff_graphs(const Graph &before, const Graph &after, const Provenance &noted = {});
// Takes the changes of these kinds (bits of bit_of) for none: what differs in nothing else counts as the same.
void ignore_changes(const Graph &before, const Graph &after, GraphDiff &diff, uint32_t kinds);
// Names the kernels that compute each group of a diff_by_origin whose `after` was lowered to `program`.
void name_kernels(GraphDiff &diff, const Graph &after, const Program &program);

// "846 → 349 nodes: 309 same, 179 fused into 40, ...", one line a pattern and one a change, at most `lines` of each (0:
// all).
std::string diff_text(const Graph &before, const Graph &after, const GraphDiff &diff, size_t lines = 0);
std::string diff_markdown(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title,
                          size_t lines = 0);
std::string diff_json(const Graph &before, const Graph &after, const GraphDiff &diff);

// Which module of the exporting program each node is of, by node name: {"m.encoder", "m.encoder.layer.0"}, outermost
// first. What stands there goes before the scopes that a name has ("/encoder/layer.0/Add").
using NodeScopes = std::unordered_map<std::string, std::vector<std::string>>;

// What the page may show besides the difference. All but the scopes are of a diff_by_origin, and may be null.
struct PageFacts {
  const std::vector<RewriteRecord> *rewrites = nullptr;  // the page steps through them,
  const std::vector<LoweringStep> *lowering = nullptr;   // and behind them through what lowering decided
  const Program *program = nullptr;                      // its placements say which buffer lives when, and where
  NodeScopes scopes;                                     // of the nodes of both graphs
};
std::string diff_html(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title,
                      const PageFacts &facts);

// For Model Explorer: both graphs as one file that it opens, and the file of its synced navigation that maps the nodes
// of each group onto each other.
struct ModelExplorerFiles {
  std::string graphs, mapping;
};
ModelExplorerFiles model_explorer_files(const Graph &before, const Graph &after, const GraphDiff &diff,
                                        const std::string &title, const NodeScopes &scopes);

}  // namespace optc
