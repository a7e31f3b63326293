#pragma once
// The text form of Graphs: what goldens hold and what --dump-ir-after prints. It parses back to an equal Graph
// (constants of more than 64 elements print as their hash and a fill; `print` with PrintOptions::full_constants writes
// all).
//
//   graph "mlp" (x: f32[N,784]) -> (probabilities: f32[N,10]) {
//     const w0: f32[784,256] = hash "1f.."                      // or  = [1, 2, 3]  or  = splat 0.5
//     h: f32[N,256] = MatMul(x, w0) @ "fc1/MatMul"
//     require N == 4 @ "node 'squeeze' (Squeeze #2)"            // what a removed node demanded; "or 1" behind the
//     second y: f32[N,10] = Softmax(h) {axis = -1} @ "fc1/act", "fc1/act_2" a: f32[N], b: f32[N] = If(cond) {
//     then_branch = () -> (t) { ... } else_branch = ... }
//   }

#include <string>
#include <string_view>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"

namespace optc {

struct PrintOptions {
  bool origins = true;
  bool types = true;
  bool full_constants = false;
};

std::string print(const Graph &graph, const PrintOptions &options = {});
Result<Graph> parse_graph(std::string_view text, Diagnostics &diagnostics);

}  // namespace optc
