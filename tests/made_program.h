#pragma once
// Programs made by hand, and run on the evaluator.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/evaluate.h"

namespace optc::testing {

using E = ElementType;

// A Program with the pieces that the tests need.
struct Made {
  Program p;
  Diagnostics diagnostics;
  EvaluateOptions options;

  Made() { p.dims = std::make_shared<DimTable>(); }
  BufferId buffer(const std::string &name, BufferKind kind, E element, Shape shape) {
    Buffer b;
    b.name = name;
    b.kind = kind;
    b.type = Type::tensor(element, std::move(shape));
    const BufferId id = p.add_buffer(std::move(b));
    if (kind == BufferKind::kInput) p.inputs.push_back(id), p.input_names.push_back(name);
    if (kind == BufferKind::kOutput) p.outputs.push_back(id), p.output_names.push_back(name);
    return id;
  }
  BufferId input(const std::string &name, E element, Shape shape) {
    return buffer(name, BufferKind::kInput, element, std::move(shape));
  }
  BufferId output(const std::string &name, E element, Shape shape) {
    return buffer(name, BufferKind::kOutput, element, std::move(shape));
  }
  Dim loop(std::vector<Loop> &loops, Dim extent) {
    const Dim d = p.dims->new_loop("i", extent);
    loops.push_back({single_symbol(d), extent});
    return d;
  }
  ScalarId load(BufferId b, std::vector<Dim> index) {
    return p.scalars.load(b, p.buffer(b).element(), std::move(index));
  }
  void add(LoopNest nest, const std::string &name = "kernel") {
    Kernel k;
    k.name = name;
    k.body = std::move(nest);
    p.order.push_back(p.add_kernel(std::move(k)));
  }
  // One loop-free stage inside `nest.loops`.
  static Stage store(BufferId to, std::vector<Dim> index, ScalarId value) {
    Stage stage;
    StageOutput o;
    o.buffer = to;
    o.index = std::move(index);
    o.value = value;
    stage.outputs.push_back(o);
    return stage;
  }
  Result<std::vector<RuntimeValue>> run(const std::vector<Constant> &inputs) {
    std::vector<RuntimeValue> values;
    for (const Constant &c : inputs) values.push_back(RuntimeValue::of(c));
    return evaluate(p, values, options, diagnostics);
  }
  std::string message() const { return diagnostics.all().empty() ? "" : diagnostics.all().back().message; }
};

template <typename T>
Constant tensor(E type, std::vector<int64_t> dims, const std::vector<T> &values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return Constant::owned(type, std::move(dims), std::move(bytes));
}

template <typename T>
std::vector<T> values_of(const RuntimeValue &v) {
  return std::vector<T>(v.tensor.as<T>(), v.tensor.as<T>() + v.tensor.count());
}

}  // namespace optc::testing
