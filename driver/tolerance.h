#pragma once
// How far an output may be off by default: what the types in which its values are stored on their way allow.

#include <vector>

#include "driver/compare.h"
#include "ir/graph/graph.h"

namespace optc {

// `given` for each output of the model, with Tolerance::floor of the coarsest 16-bit type in which a value that the
// output depends on is computed: an f32 output of a model that computes in f16 is as exact as f16. `storage`: that of
// the bundle's own temporaries, of every output (kFloat32: none). 8-bit types are no storage but quantization: what a
// value that crosses a step changes is asked of ONNX Runtime (driver/sensitivity.h).
std::vector<Tolerance> output_tolerances(const Graph &model, const Tolerance &given, ElementType storage);
// The same for each value, by ValueId::index.
std::vector<Tolerance> value_tolerances(const Graph &model, const Tolerance &given, ElementType storage);

}  // namespace optc
