#pragma once
// optimizer/: Graph -> smaller Graph by named rules, each with a numerics class, a precondition and goldens
// (testdata/rules). The ordered table of passes, with reasons, stands in pipeline.cc. Every change goes through the
// Rewriter, so the report says what was done and, for rules whose head matched but whose precondition did not, what was
// not done and why.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// Operators that the result may be said in, where it is to be written in a set of operators (an opset of ONNX).
struct OperatorSet {
  std::string name;                                              // for reasons: "opset 13"
  std::function<bool(std::string_view op, ElementType of)> has;  // `of`: elements of its first operand
};

// A pass that ran once over the graph.
struct PassRun {
  std::string_view pass;
  size_t rewrites = 0;  // that it made
  double seconds = 0;
  const Graph &graph;  // as it left it
};

struct OptimizeOptions {
  std::vector<std::string> disabled;    // names of passes or rules; "norm" disables norm.* too
  std::vector<std::string> only;        // when not empty: run these passes and rules alone
  int64_t max_rewrites = INT64_MAX;     // bisection: stop after so many
  int64_t max_folded_bytes = 64 << 20;  // a folded constant may not be larger than this and than four times its inputs
  bool verify_each = true;              // run the verifier after each pass that changed something
  // With `has` the result is to be written: rules make no operator that this set lacks: what it cannot say better than
  // before stays as it is, and counts as not applied. Without `has`: every operator, optc's own too.
  OperatorSet operators;
  // Names of passes. The first round begins with start_from, as on a graph that stop_after the pass before it has left;
  // nothing runs after the first run of stop_after. Empty: all of them, until none changes anything.
  std::string start_from, stop_after;
  // Told of each pass that ran, before the verifier looks at what it made; a failure ends the optimizer. Null: nobody.
  std::function<Status(const PassRun &)> after_pass;
};

struct OptimizeReport {
  size_t nodes_before = 0, nodes_after = 0;
  std::vector<RewriteRecord> rewrites;
  std::vector<MissedRewrite> missed;
  std::string left_as_it_is;  // why nothing was rewritten, where that is so
};

// On an error the report's last rewrite is the one that made it, where it came of one.
Status optimize(Graph &graph, const OptimizeOptions &options, OptimizeReport &report, Diagnostics &diagnostics);

std::vector<std::string> list_passes();  // by name, in the order in which they run

// What `optc explain` and --list-passes show.
struct RuleInfo {
  std::string name, pass;
  NumericsClass numerics = NumericsClass::kExact;
  std::string summary;       // pattern -> result
  std::string precondition;  // "always", or what must hold
};
std::vector<RuleInfo> list_rules();

}  // namespace optc
