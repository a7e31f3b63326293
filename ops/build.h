#pragma once
// ops/build: Graph -> unfused Program, one or a few kernels a node, control flow included. Folding, verification and
// conformance run it as it is; lowering starts from it. Expansions (LayerNormalization into its parts) happen here, so
// the inner values of one operator keep the compute type and are rounded once, at its output.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/program/program.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

Result<Program> build_program(const Graph &graph, Diagnostics &diagnostics);
// A Program of some nodes (in order, of one region) whose free values are constants of the graph or its inputs: used by
// folding. Its outputs are the given values; its inputs are the free values that are not constants, in order of first
// use.
Result<Program> build_region(const Graph &graph, std::span<const NodeId> nodes, std::span<const ValueId> outputs,
                             Diagnostics &diagnostics);

// The type in which an operator computes on operands of `storage`: f32 for every float up to f32, f64, i32 for the
// integers below 32 bits, itself otherwise.
ElementType compute_type(ElementType storage);

// A scalar expression under construction, with the operators one expects.
class Expr {
 public:
  Expr() = default;
  Expr(ScalarPool *pool, ScalarId id) : pool_(pool), id_(id) {}
  ScalarId id() const { return id_; }
  ScalarPool &pool() const { return *pool_; }
  ElementType type() const { return pool_->at(id_).type; }
  bool valid() const { return id_.valid(); }
  Expr constant(double value) const { return {pool_, pool_->constant(type(), value)}; }  // of this expression's type

 private:
  ScalarPool *pool_ = nullptr;
  ScalarId id_;
};
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator+(Expr a, double b);
Expr operator-(Expr a, double b);
Expr operator-(double a, Expr b);
Expr operator*(Expr a, double b);
Expr operator/(Expr a, double b);
Expr operator/(double a, Expr b);
Expr operator-(Expr a);
Expr apply(ScalarOp op, Expr a);          // unary
Expr apply(ScalarOp op, Expr a, Expr b);  // binary
Expr select(Expr condition, Expr a, Expr b);
Expr cast(Expr a, ElementType to, bool saturate = true);

class BuildContext;

// Builds one loop-nest kernel. Outer loops first, then stages; finish() appends it to the Program. A loop over a
// dimension of length 1 is not made: its index is 0. Kernels of one value an output element (pointwise, index maps)
// have all loops outside and one stage without loops; the innermost of the outer loops is their vector axis.
//
//   NestBuilder nest(context, "layer_norm");
//   std::vector<Dim> row = nest.outer(rows);                                  // shared parallel loops
//   Dim d = nest.stage_loop("d", width);                                      // opens a stage if none is open
//   Expr mean = nest.reduce(Combine::kSum, nest.load(x, {row.., d})) / width; // closes the stage; the result is a
//   local Dim e = nest.stage_loop("e", width); nest.store(y, {row.., e}, nest.load(x, {row.., e}) - mean);
//   nest.finish();
class NestBuilder {
 public:
  NestBuilder(BuildContext &context, std::string_view note);
  Dim outer(std::string_view name, Dim extent);
  std::vector<Dim> outer(const Shape &extents);  // named i0, i1, ...
  Dim stage_loop(std::string_view name, Dim extent);
  std::vector<Dim> stage_loops(const Shape &extents);
  void end_stage();

  // The element at a logical index, in its compute type (`load`) or as stored (`load_raw`).
  Expr load(BufferId buffer, std::vector<Dim> index);
  Expr load_raw(BufferId buffer, std::vector<Dim> index);
  Expr index(Dim value);  // i64
  // A place along an axis of `extent` elements, to be compared and chosen: i32, which vectors hold, where that fits.
  Expr position(Dim value, Dim extent);
  Expr constant(ElementType type, double value);
  // An integer expression as an index into a dimension of that extent (a gathered index): 0 <= value < extent is the
  // caller's promise, so clamp, wrap or select before. Negative indices: add the extent where value < 0.
  Dim as_index(Expr value, Dim extent);
  // Stores, cast to the buffer's element type. Several stores of one stage share its loops.
  void store(BufferId buffer, std::vector<Dim> index, Expr value, Expr condition = {});
  void combine(BufferId buffer, std::vector<Dim> index, Expr value, Combine how,
               Expr condition = {});  // sequential scatter
  // Reduces over the loops of the open stage and closes it. The accumulator has the type of `value`.
  Expr reduce(Combine how, Expr value, Expr initial = {}, Expr condition = {});
  // Several reductions over the same loops in one stage.
  std::vector<Expr> reduce_all(const std::vector<std::pair<Combine, Expr>> &values);
  // A row of scratch: values of the open stage kept at `index` (of its loops); loops not in index are reduced with
  // `how`.
  LocalId local_row(std::string_view name, ElementType type, Shape shape);
  void store_local(LocalId local, std::vector<Dim> index, Expr value, Combine how = Combine::kStore);
  Expr load_local(LocalId local, std::vector<Dim> index);
  LoopNest &nest() { return nest_; }  // to set `contraction` or `sequential`
  size_t stage_index() const;         // of the open or next stage
  KernelId finish();

 private:
  Stage &open();
  BuildContext &context_;
  std::string note_;
  LoopNest nest_;
  bool open_ = false;
};

// What an operator's `build` sees.
class BuildContext {
 public:
  virtual ~BuildContext() = default;
  virtual const Graph &graph() const = 0;
  virtual NodeId id() const = 0;
  virtual Program &program() = 0;
  const Node &node() const { return graph().node(id()); }
  bool has_input(size_t i) const { return node().input(i).valid(); }
  bool has_output(size_t i) const { return node().output(i).valid(); }
  virtual BufferId input(size_t i) = 0;   // invalid when absent
  virtual BufferId output(size_t i) = 0;  // made with the inferred type; invalid when absent
  const Type &input_type(size_t i) const;
  const Shape &shape(size_t i) const { return *input_type(i).shape; }
  const Type &output_type(size_t i) const;
  const Shape &output_shape(size_t i) const { return *output_type(i).shape; }
  const Constant *constant(size_t i) const { return graph().constant(node().input(i)); }
  virtual const std::vector<Dim> *elements(
      size_t i) const = 0;  // known elements of an integer input (constants included)
  virtual BufferId temporary(std::string_view name, ElementType element, Shape shape) = 0;
  virtual BufferId constant_buffer(std::string_view name, Constant value) = 0;
  virtual void alias(size_t output,
                     BufferId same_bytes) = 0;  // the output is a view of the same elements in the same order
  virtual KernelId add(Kernel kernel) = 0;      // named, given this node's origin, appended to the running sequence
  virtual KernelId library(std::string function, std::vector<BufferId> inputs, std::vector<BufferId> outputs,
                           std::vector<std::pair<std::string, Attribute>> attributes = {},
                           std::vector<const DimSymbol *> defines = {}) = 0;
  // Builds a body region's nodes into a detached kernel sequence; region inputs are bound to the given buffers. Gives
  // the buffers of the region's outputs.
  virtual Result<std::pair<std::vector<KernelId>, std::vector<BufferId>>> body(RegionId region,
                                                                               std::vector<BufferId> inputs) = 0;
  // Appends kernels that body() or detached() gave to the running sequence.
  virtual void splice(const std::vector<KernelId> &kernels) = 0;
  // The kernels that `f` adds, as a detached sequence.
  virtual std::vector<KernelId> detached(const std::function<void()> &f) = 0;
  virtual Failure invalid(std::string message) = 0;
  virtual Failure unsupported(std::string message) = 0;

  // Input i at an output index that it broadcasts to, in compute type; a constant of one element is a number.
  Expr operand(NestBuilder &nest, size_t i, const std::vector<Dim> &index, const Shape &shape);
  // The most common kernels. Inputs broadcast to the output's shape; `f` gets loads in compute type and its result is
  // cast.
  Status pointwise(const std::vector<size_t> &inputs, size_t output,
                   const std::function<Expr(NestBuilder &, std::vector<Expr>)> &f);
  Status pointwise_on(const std::vector<BufferId> &inputs, BufferId output,
                      const std::function<Expr(NestBuilder &, std::vector<Expr>)> &f);
  // output[i...] = input[f(i...)], elements moved as stored.
  Status index_map(BufferId input, BufferId output, const std::function<std::vector<Dim>(const std::vector<Dim> &)> &f);
};

// Index of a broadcast operand: the trailing dims of `index` with 0 where the operand's dim is 1. A dim not proved
// equal to the output's and not 1 reads min(i, dim - 1), which is right for both (dim == 1 and dim == extent).
std::vector<Dim> broadcast_index(const std::vector<Dim> &index, const Shape &operand, const Shape &output);
// Row-major linear index and its inverse.
Dim flatten_index(const std::vector<Dim> &index, const Shape &shape);
std::vector<Dim> unflatten_index(Dim linear, const Shape &shape);

}  // namespace optc
