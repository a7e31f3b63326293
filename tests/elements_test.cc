// Elements of small integer tensors that inference knows: they are what the operators compute, in every type.
#include "ops/elements.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "evaluate/evaluate.h"
#include "ir/dim/saturation.h"
#include "ir/graph/text.h"
#include "ops/build.h"
#include "ops/registry.h"

namespace optc {
namespace {

using E = ElementType;
constexpr E kIntegers[] = {E::kInt8, E::kUInt8, E::kInt16, E::kUInt16, E::kInt32, E::kUInt32, E::kInt64, E::kUInt64};

Graph inferred(const std::string &text) {
  Diagnostics diagnostics;
  Result<Graph> graph = parse_graph(text, diagnostics);
  EXPECT_TRUE(graph.ok()) << text << (diagnostics.all().empty() ? "" : format(diagnostics.all()[0]));
  if (!graph.ok()) return Graph();
  EXPECT_TRUE(infer_graph(*graph, diagnostics).ok()) << text << format(diagnostics.all()[0]);
  return *std::move(graph);
}

Result<std::vector<RuntimeValue>> run(const Graph &graph, const std::vector<RuntimeValue> &inputs,
                                      Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Program program, build_program(graph, diagnostics));
  return evaluate(program, inputs, {}, diagnostics);
}

RuntimeValue tensor(E type, std::vector<int64_t> dims, const std::vector<int64_t> &values) {
  const size_t width = static_cast<size_t>(bit_width(type)) / 8;
  std::vector<uint8_t> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(bytes.data() + i * width, &values[i], width);
  return RuntimeValue::of(Constant::owned(type, std::move(dims), std::move(bytes)));
}

// The edges of a type and what lies between, as the bits that an int64 holds.
std::vector<int64_t> edges(E type) {
  const int width = bit_width(type);
  std::vector<int64_t> values{0, 1, 2, 7, 100};
  if (is_signed_integer(type)) {
    const int64_t most = width == 64 ? INT64_MAX : (int64_t{1} << (width - 1)) - 1;
    values.insert(values.end(), {most, most - 1, -most - 1, -most, -1, -7, most / 3});
  } else {
    const int64_t most = width == 64 ? -1 : (int64_t{1} << width) - 1;
    values.insert(values.end(), {most, most - 1, width == 64 ? INT64_MAX : most / 2, most - 6});
  }
  return values;
}

std::string number(E type, int64_t value) {
  return type == E::kUInt64 ? std::to_string(static_cast<uint64_t>(value)) : std::to_string(value);
}

// `call` of operands a and b: with both as constants, whose elements inference knows, and with both given at run time.
// Returns how often inference knew the result.
int compare(E type, const std::string &call, const std::string &more = "") {
  int known = 0;
  const std::string name(to_string(type));
  for (const int64_t a : edges(type))
    for (const int64_t b : edges(type)) {
      if (b == 0 && (call.find("Div") == 0 || call.find("Mod") == 0)) continue;
      const std::string operands = "const a: " + name + "[2] = [" + number(type, a) + ", " + number(type, b) +
                                   "]\n  const b: " + name + "[1] = [" + number(type, b) + "]\n";
      const std::string body = more + "  y: " + name + "[?] = " + call + "\n})";
      const std::string head = "graph \"g\" (";
      const Graph fixed =
          inferred(head + ") -> (y) {\n  opset \"\" 21\n  " + operands + body.substr(0, body.size() - 1));
      const Graph open = inferred(head + "a: " + name + "[2], b: " + name + "[1]) -> (y) {\n  opset \"\" 21\n" +
                                  body.substr(0, body.size() - 1));
      known += fixed.value(fixed.find_value("y")).elements != nullptr;
      Diagnostics diagnostics;
      const auto got = run(fixed, {}, diagnostics),
                 want = run(open, {tensor(type, {2}, {a, b}), tensor(type, {1}, {b})}, diagnostics);
      if (!got || !want) {
        ADD_FAILURE() << call << " " << name << ": " << format(diagnostics.all()[0]);
        return known;
      }
      EXPECT_TRUE((*got)[0].tensor.equals((*want)[0].tensor))
          << call << " of " << name << " " << number(type, a) << " and " << number(type, b) << " is "
          << (*got)[0].tensor.as_int64(0) << " and " << (*got)[0].tensor.as_int64(1) << ", not "
          << (*want)[0].tensor.as_int64(0) << " and " << (*want)[0].tensor.as_int64(1);
    }
  return known;
}

TEST(Elements, ArithmeticWrapsAtTheType) {
  for (const E type : kIntegers) {
    for (const char *call : {"Add(a, b)", "Sub(a, b)", "Mul(a, b)", "Div(a, b)", "Mod(a, b) {fmod = 0}", "Min(a, b)",
                             "Max(a, b)", "Neg(a)", "Abs(a)", "Clip(a, c)", "Sum(a, b, a)"}) {
      if (is_unsigned_integer(type) && std::string(call) == "Neg(a)") continue;
      const std::string scalar =
          std::string(call) == "Clip(a, c)" ? "  const c: " + std::string(to_string(type)) + "[] = [5]\n" : "";
      EXPECT_GT(compare(type, call, scalar), 0) << call << " of " << to_string(type) << " is never known";
    }
    compare(type, "ReduceProd(a)");
    compare(type, "ReduceSum(a)");
  }
}

TEST(Elements, ComparisonsAndCastsSeeTheWrappedValue) {
  for (const E type : kIntegers) {
    const std::string name(to_string(type));
    for (const char *op : {"Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"})
      compare(type, "Cast(t) {to = " + std::to_string(static_cast<int>(type)) + "}",
              "  s: " + name + "[?] = Add(a, b)\n  t: bool[?] = " + op + "(s, b)\n");
    for (const E other : kIntegers) {
      const std::string to = std::to_string(static_cast<int>(other)), back = std::to_string(static_cast<int>(type));
      compare(type, "Cast(t) {to = " + back + "}",
              "  t: " + std::string(to_string(other)) + "[?] = Cast(a) {to = " + to + "}\n");
    }
  }
}

TEST(Elements, ExpressionsAreKeptWhereSizesStayInTheType) {
  const std::string head = R"(graph "g" (x: f32[N,S]) -> (y) {
  opset "" 21
  s: i64[?] = Shape(x)
)";
  const auto known = [&](const std::string &rest) {
    const Graph graph = inferred(head + rest + "}");
    return graph.value(graph.find_value("y")).elements != nullptr;
  };
  EXPECT_TRUE(known("  y: i32[?] = Cast(s) {to = 6}\n"));
  EXPECT_FALSE(known("  y: i16[?] = Cast(s) {to = 5}\n"));
  EXPECT_FALSE(known("  y: u8[?] = Cast(s) {to = 2}\n"));
  EXPECT_FALSE(known("  const k: i64[1] = [4611686018427387000]\n  y: i64[?] = Mul(s, k)\n"));
  EXPECT_FALSE(
      known("  const k: i32[1] = [65536]\n  t: i32[?] = Cast(s) {to = 6}\n  u: i32[?] = Mul(t, k)\n  y: i32[?] = "
            "Mul(u, k)\n"));
}

TEST(Elements, WhatLeavesTheTypeAtRunTimeIsAFault) {
  const Graph graph = inferred(R"(graph "g" (x: f32[N]) -> (y) {
  opset "" 21
  const k: i32[1] = [100000000]
  s: i64[?] = Shape(x)
  t: i32[?] = Cast(s) {to = 6}
  y: i32[?] = Mul(t, k)
})");
  Diagnostics diagnostics;
  const auto good = run(graph, {tensor(E::kFloat32, {7}, std::vector<int64_t>(7, 0))}, diagnostics);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ((*good)[0].tensor.as_int64(0), 700000000);
  const auto wrong = run(graph, {tensor(E::kFloat32, {30}, std::vector<int64_t>(30, 0))}, diagnostics);
  ASSERT_TRUE(wrong.ok() ? (*wrong)[0].tensor.as_int64(0) == static_cast<int32_t>(3000000000u)
                         : wrong.failure().kind == ErrorKind::kFault);
}

TEST(Broadcast, OfADimThatIsZeroWhenItRuns) {
  const Graph graph = inferred(R"(graph "g" (x: f32[A], y: f32[B]) -> (z) {
  opset "" 21
  z: f32[?] = Add(x, y)
})");
  for (const auto &[a, b, want] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {0, 1, 0}, {1, 0, 0}, {0, 0, 0}, {1, 1, 1}, {3, 1, 3}, {1, 3, 3}, {3, 3, 3}, {0, 3, -1}, {2, 3, -1}}) {
    Diagnostics diagnostics;
    const auto z = run(graph,
                       {tensor(E::kFloat32, {a}, std::vector<int64_t>(static_cast<size_t>(a), 0)),
                        tensor(E::kFloat32, {b}, std::vector<int64_t>(static_cast<size_t>(b), 0))},
                       diagnostics);
    EXPECT_EQ(z.ok() ? (*z)[0].tensor.count() : -1, want) << a << " and " << b;
    if (!z.ok()) {
      EXPECT_EQ(z.failure().kind, ErrorKind::kFault);
    }
  }
}

TEST(Broadcast, OfAProductOfDimsAgainstOneOfThem) {
  const Graph graph = inferred(R"(graph "g" (x: f32[B,S], y: f32[S]) -> (z) {
  opset "" 21
  const all: i64[1] = [-1]
  f: f32[?] = Reshape(x, all)
  z: f32[?] = Add(f, y)
})");
  for (const auto &[b, s, good] :
       std::vector<std::tuple<int64_t, int64_t, bool>>{{1, 3, true}, {4, 1, true}, {1, 1, true}, {2, 3, false}}) {
    Diagnostics diagnostics;
    const auto z = run(graph,
                       {tensor(E::kFloat32, {b, s}, std::vector<int64_t>(static_cast<size_t>(b * s), 0)),
                        tensor(E::kFloat32, {s}, std::vector<int64_t>(static_cast<size_t>(s), 0))},
                       diagnostics);
    EXPECT_EQ(z.ok(), good) << b << " and " << s;
    if (z.ok()) {
      EXPECT_EQ((*z)[0].tensor.count(), b * s);
    }
  }
}

// What NumPy broadcasts three sizes to; -1: they do not.
int64_t broadcast_of(const std::vector<int64_t> &sizes) {
  int64_t result = 1;
  for (int64_t size : sizes) {
    if (size == 1 || size == result) continue;
    if (result != 1) return -1;
    result = size;
  }
  return result;
}

TEST(Broadcast, OfThreeDimsIsWhatTheirSizesSay) {
  for (const char *text : {R"(graph "g" (c: bool[A], x: f32[B], y: f32[C]) -> (z) {
  opset "" 21
  z: f32[?] = Where(c, x, y)
})",
                           R"(graph "g" (c: bool[A], x: f32[B], y: f32[C]) -> (z) {
  opset "" 21
  f: f32[A] = Cast(c) {to = 1}
  s: f32[?] = Add(y, x)
  t: f32[?] = Add(f, s)
  z: f32[?] = Add(t, s)
})"}) {
    const Graph graph = inferred(text);
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t a = i % 4, b = i / 4 % 4, c = i / 16;
      Diagnostics diagnostics;
      const auto zeros = [](E type, int64_t n) {
        return tensor(type, {n}, std::vector<int64_t>(static_cast<size_t>(n), 0));
      };
      const auto z = run(graph, {zeros(E::kBool, a), zeros(E::kFloat32, b), zeros(E::kFloat32, c)}, diagnostics);
      EXPECT_EQ(z.ok() ? (*z)[0].tensor.count() : -1, broadcast_of({a, b, c})) << a << ", " << b << ", " << c;
    }
  }
}

// Columns of a matrix, which may lack them: chains of them keep sizes that can be stated, and Shape says them.
TEST(Broadcast, OfSlicesOfASymbolicDim) {
  constexpr int kColumns = 12;
  std::string text =
      "graph \"g\" (x: f32[A,B], y: f32[C,D]) -> (z, n) {\n  opset \"\" 21\n  const axis: i64[1] = [1]\n";
  text += "  const one: f32[1,1] = [1.0]\n";
  for (int k = 0; k <= kColumns; ++k)
    text += "  const i" + std::to_string(k) + ": i64[1] = [" + std::to_string(k) + "]\n";
  text += "  s0: f32[C,D] = Identity(y)\n";
  for (int k = 0; k < kColumns; ++k) {
    const std::string at = std::to_string(k), next = std::to_string(k + 1);
    text += "  p" + at + ": f32[?] = Slice(x, i" + at + ", i" + next + ", axis)\n";
    text += "  s" + next + ": f32[?] = Add(s" + at + ", p" + at + ")\n";
  }
  text += "  h: i64[2] = Shape(s" + std::to_string(kColumns) + ")\n  z: f32[?] = Expand(one, h)\n";
  text += "  n: i64[] = Size(s" + std::to_string(kColumns) + ")\n}\n";
  const Graph graph = inferred(text);
  EXPECT_LE(to_string(graph.value(graph.find_value("z")).type).size(), 600u);
  for (const auto &[columns, width, want] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{12, 1, 1}, {20, 5, 5}, {11, 1, 0}, {11, 5, -1}, {0, 0, 0}}) {
    Diagnostics diagnostics;
    const auto z = run(graph,
                       {tensor(E::kFloat32, {2, columns}, std::vector<int64_t>(static_cast<size_t>(2 * columns), 0)),
                        tensor(E::kFloat32, {2, width}, std::vector<int64_t>(static_cast<size_t>(2 * width), 0))},
                       diagnostics);
    EXPECT_EQ(z.ok() ? (*z)[0].tensor.count() : -1, want < 0 ? -1 : 2 * want) << columns << " and " << width;
    if (z.ok()) {
      EXPECT_EQ((*z)[1].tensor.as_int64(0), 2 * want);
    }
  }
}

// Pads and sizes as exporters compute them, in f32 and f64: known where the sizes are, and what a run gives.
TEST(Elements, SizesThatFloatsComputeAreKnown) {
  const std::string same_padding = R"(
  const row: i64[] = [2]
  const stride: F[] = [2]
  const one: F[] = [1]
  const kernel: F[] = [3]
  const zero: F[] = [0]
  const axis: i64[1] = [0]
  const ends: i64[2] = [1, -2]
  h: i64[?] = Gather(s, row) {axis = 0}
  f: F[?] = Cast(h) {to = T}
  q: F[?] = Div(f, stride)
  c: F[?] = Ceil(q)
  m: F[?] = Sub(c, one)
  t: F[?] = Mul(m, stride)
  u: F[?] = Add(t, kernel)
  v: F[?] = Sub(u, f)
  p: F[?] = Clip(v, zero)
  left: F[?] = Div(p, stride)
  cut: F[?] = Floor(left)
  right: F[?] = Sub(p, cut)
  l: F[?] = Unsqueeze(cut, axis)
  r: F[?] = Unsqueeze(right, axis)
  both: F[?] = Concat(l, r) {axis = 0}
  turned: F[?] = Gather(both, ends) {axis = 0}
  y: i64[?] = Cast(turned) {to = 7}
})";
  const std::string scaled = R"(
  const scale: F[1] = [1.7]
  const least: F[] = [-3]
  f: F[?] = Cast(s) {to = T}
  n: F[?] = Mul(f, scale)
  o: F[?] = Neg(n)
  b: F[?] = Abs(o)
  e: F[?] = Max(o, least)
  k: F[?] = Min(b, e)
  z: F[?] = Relu(b)
  w: F[?] = Sub(z, k)
  y: i64[?] = Cast(w) {to = 7}
})";
  for (const auto &[type, number] : {std::pair("f32", "1"), std::pair("f64", "11")})
    for (const std::string &chain : {same_padding, scaled})
      for (const int64_t height : {1, 2, 3, 7, 10, 224, 16777217}) {
        std::string body = chain;
        for (size_t at; (at = body.find("F[")) != std::string::npos;) body.replace(at, 1, type);
        for (size_t at; (at = body.find("= T}")) != std::string::npos;) body.replace(at + 2, 1, number);
        const std::string opset = ") -> (y) {\n  opset \"\" 21\n";
        const Graph fixed = inferred("graph \"g\" (x: u8[1,3," + std::to_string(height) + ",5]" + opset +
                                     "  s: i64[?] = Shape(x)" + body);
        const Graph open = inferred("graph \"g\" (s: i64[4]" + opset + body);
        const auto &known = fixed.value(fixed.find_value("y")).elements;
        ASSERT_TRUE(known) << body;
        Diagnostics diagnostics;
        const auto want = run(open, {tensor(E::kInt64, {4}, {1, 3, height, 5})}, diagnostics);
        ASSERT_TRUE(want.ok()) << format(diagnostics.all()[0]);
        ASSERT_EQ(static_cast<int64_t>(known->size()), (*want)[0].tensor.count());
        for (size_t i = 0; i < known->size(); ++i)
          EXPECT_EQ((*known)[i].str(), std::to_string((*want)[0].tensor.as_int64(static_cast<int64_t>(i))))
              << height << " " << type << " " << i;
      }
  // Not numbers, and numbers beyond the type, are left to the run.
  for (const char *number : {"nan", "inf", "3e38"}) {
    const Graph graph =
        inferred(std::string("graph \"g\" (x: f32[2]) -> (y) {\n  opset \"\" 21\n  const k: f32[] = [") + number +
                 "]\n  a: f32[] = Neg(k)\n  y: i32[?] = Cast(a) {to = 6}\n}\n");
    EXPECT_FALSE(graph.value(graph.find_value("y")).elements) << number;
  }
}

TEST(Elements, SizesBeyondWhatADimStatesAreComputed) {
  std::string dims;
  for (int k = 0; k < 7; ++k) dims += (k ? "," : "") + std::string("A") + std::to_string(k);
  const Graph graph =
      inferred("graph \"g\" (x: f32[" + dims + "]) -> (h, n) {\n  opset \"\" 21\n  h: i64[7] = Shape(x)\n" +
               "  n: i64[] = Size(x)\n}\n");
  Diagnostics diagnostics;
  const auto z = run(graph, {tensor(E::kFloat32, {1, 2, 1, 3, 1, 1, 2}, std::vector<int64_t>(12, 0))}, diagnostics);
  ASSERT_TRUE(z.ok());
  EXPECT_EQ((*z)[0].tensor.as_int64(3), 3);
  EXPECT_EQ((*z)[1].tensor.as_int64(0), 12);
}

TEST(Bounds, ExpressionsThatGrowEndAsSaturated) {
  DimTable table;
  Dim sum = 0;
  for (const char *name : {"a", "b", "c", "d", "e", "f", "g", "h"}) sum = sum + table.model_symbol(name);
  Dim power = sum;
  for (int i = 0; i < 8; ++i) power = power * power;
  EXPECT_TRUE(is_saturated(power));
  EXPECT_FALSE(is_saturated(sum * sum));
  Dim nested = sum;  // shared parts: as text it doubles with each step
  for (int i = 0; i < 64; ++i) nested = floor_div(nested + sum * nested, sum + 1) + min(nested, sum * 3);
  EXPECT_TRUE(is_saturated(nested));
  // What is computed from such a one is one, too: next to other terms, divided or taken away, it is no number.
  const Dim n = table.model_symbol("n");
  for (const Dim d : {power + n, power - power, power * n - 7, Dim(3) * power + n, floor_div(power, 9), mod(power, 9),
                      floor_div(power + n, Dim(4)), mod(n + power, n + 1)})
    EXPECT_TRUE(is_saturated(d)) << d.str();
}

}  // namespace
}  // namespace optc
