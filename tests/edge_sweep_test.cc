// Every strategy of the CPU at sizes around its tiles, vectors, blocks and borders: many small networks in one bundle,
// each kernel of it beside the evaluator, on every instruction set of this machine. Extents that are symbolic get many
// values in turn, so that they cost one compilation. What differs is named with its strategy.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "driver/kernel_watch.h"
#include "lowering/lower.h"
#include "tests/bundle_testing.h"

namespace optc {
namespace {

// Values of an input. Maxima of what is only negative, and NaNs that reach them, show where an accumulator starts.
enum class Values { kNormal, kNegative, kSpecial };

Constant draw(const std::vector<int64_t> &dims, Values values, std::mt19937 &random) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * sizeof(float));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    float v = normal(random);
    if (values == Values::kNegative) v = -std::fabs(v) - 0.125f;
    if (values == Values::kSpecial && random() % 61 == 0) v = random() % 2 ? NAN : -INFINITY;
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof v, &v, sizeof v);
  }
  return Constant::owned(ElementType::kFloat32, dims, std::move(bytes));
}

// The text of a graph of independent networks. Dims are as the graph's text has them.
class Net {
 public:
  std::string input(const std::string &dims) {
    inputs_ += fmt::format("{}x{}: f32[{}]", inputs_.empty() ? "" : ", ", count_, dims);
    return "x" + std::to_string(count_++);
  }
  std::string weights(const std::string &dims) {
    body_ += fmt::format("  const w{}: f32[{}] = hash \"{}\"\n", count_, dims, count_);
    return "w" + std::to_string(count_++);
  }
  // The node's result is an output.
  void node(const std::string &call, const std::string &attributes = {}) {
    outputs_ += fmt::format("{}y{}", outputs_.empty() ? "" : ", ", count_);
    body_ +=
        fmt::format("  y{0} = {1}{2} @ \"n{0}\"\n", count_, call, attributes.empty() ? "" : " {" + attributes + "}");
    ++count_;
  }
  // A value that is no output, and its name.
  std::string value(const std::string &call, const std::string &attributes = {}) {
    body_ += fmt::format("  t{} = {}{}\n", count_, call, attributes.empty() ? "" : " {" + attributes + "}");
    return "t" + std::to_string(count_++);
  }
  std::string constant(const std::string &type, const std::string &given) {
    body_ += fmt::format("  const c{}: {} = {}\n", count_, type, given);
    return "c" + std::to_string(count_++);
  }
  std::string text() const { return fmt::format("graph \"sweep\" ({}) -> ({}) {{\n{}}}", inputs_, outputs_, body_); }

 private:
  std::string inputs_, outputs_, body_;
  int count_ = 0;
};

struct SizedRun {
  std::map<std::string, int64_t> dims;
  Values values;
};

// Builds the net once and watches it in each of the runs; returns the strategies of its kernels.
std::set<std::string> sweep(const Net &net, const std::vector<SizedRun> &runs) {
  std::set<std::string> strategies;
  Diagnostics diagnostics;
  Result<Program> lowered = testing::program_of(net.text(), diagnostics);
  EXPECT_TRUE(lowered.ok()) << testing::messages(diagnostics) << net.text();
  if (!lowered.ok()) return strategies;
  LoweringReport report;
  EXPECT_TRUE(lower_program(*lowered, {}, report, diagnostics).ok()) << testing::messages(diagnostics);
  const WatchedProgram made_of{std::make_shared<const Program>(std::move(*lowered)), {}, false};
  const Program &program = *made_of.program;
  size_t kernels = 0;
  for (const Kernel &kernel : program.kernels) {
    if (!kernel.alive) continue;
    ++kernels;
    const bool function = kernel.library() && is_plain(kernel.schedule);
    strategies.insert(function ? kernel.library()->function : name(kernel.schedule));
  }
  BundleOptions options;
  options.probe = true;
  testing::BuiltBundle built;
  const std::string made = built.make(program, options);
  EXPECT_EQ(made, "");
  if (!made.empty()) return strategies;
  for (const char *isa : {"base", "avx2", "avx512", "vnni", "amx"}) {
    // A library reads the instruction set once: a copy for each.
    const std::string library = built.library() + "." + isa;
    std::filesystem::copy_file(built.library(), library);
    setenv("OPTC_ISA", isa, 1);
    BundleRunOptions run_options;
    run_options.threads = 2;
    auto bundle = Bundle::load(library, "m", run_options, diagnostics);
    EXPECT_TRUE(bundle.ok()) << testing::messages(diagnostics);
    WatchReport watched;
    std::mt19937 random(7);
    for (size_t i = 0; bundle.ok() && i < runs.size() && !watched.difference; ++i) {
      std::vector<RuntimeValue> inputs;
      for (const BufferId id : program.inputs) {
        std::vector<int64_t> dims;
        for (const Dim d : program.buffer(id).shape())
          dims.push_back(
              *evaluate(d, [&](const DimSymbol &s) -> std::optional<int64_t> { return runs[i].dims.at(s.name); }));
        inputs.push_back(RuntimeValue::of(draw(dims, runs[i].values, random)));
      }
      EXPECT_TRUE(watch_bundle(made_of, **bundle, inputs, {}, watched, diagnostics).ok())
          << testing::messages(diagnostics);
      std::string at;
      for (const auto &[symbol, value] : runs[i].dims) at += fmt::format(" {}={}", symbol, value);
      if (!watched.difference) continue;
      const KernelFinding &f = *watched.difference;
      ADD_FAILURE() << "kernel " << f.kernel << ", strategy " << f.strategy << ", " << f.isa << ", run " << i << " at"
                    << at << ": " << f.output << ": " << f.problem << "; worst at " << f.index << ": " << f.got
                    << ", expected " << f.expected << " within " << f.allowed;
    }
    unsetenv("OPTC_ISA");
    if (watched.difference) continue;
    EXPECT_TRUE(watched.not_compared.empty());
    EXPECT_EQ(watched.kernels.size(), kernels) << "on " << isa;
  }
  return strategies;
}

void expect_all(const std::set<std::string> &strategies, const std::vector<std::string> &wanted) {
  std::string all;
  for (const std::string &s : strategies) all += " " + s;
  for (const std::string &s : wanted) EXPECT_TRUE(strategies.count(s)) << "no kernel is " << s << ", there are" << all;
}

TEST(EdgeSweep, Products) {
  Net net;
  // Columns around vectors and panels, sums around blocks (1024 terms), rows N around tiles.
  for (const auto &[k, n] : std::vector<std::pair<int, int>>{
           {3, 1}, {1, 7}, {64, 16}, {17, 33}, {130, 15}, {300, 48}, {1024, 17}, {1025, 65}, {1100, 130}, {2050, 70}})
    net.node(fmt::format("MatMul({}, {})", net.input(fmt::format("N,{}", k)), net.weights(fmt::format("{},{}", k, n))));
  for (const auto &[k, n] : std::vector<std::pair<int, int>>{{19, 17}, {33, 64}, {1030, 66}})
    net.node(fmt::format("Gemm({}, {}, {})", net.input(fmt::format("N,{}", k)), net.weights(fmt::format("{},{}", n, k)),
                         net.weights(std::to_string(n))),
             "transA = 0, transB = 1, alpha = 1.0, beta = 1.0");
  for (const auto &[k, n] : std::vector<std::pair<int, int>>{{5, 17}, {33, 16}, {1030, 70}})
    net.node(fmt::format("MatMul({}, {})", net.input(fmt::format("N,{}", k)), net.input(fmt::format("{},{}", k, n))));
  net.node(fmt::format("MatMul({}, {})", net.input("2,N,K"), net.input("2,K,M")));
  std::vector<SizedRun> runs;
  for (const int64_t n : {1, 2, 3, 5, 6, 7, 8, 12, 13, 14, 15, 29})
    runs.push_back({{{"N", n}, {"K", 2 * n - 1}, {"M", 3 * n % 17 + 1}}, Values::kNormal});
  expect_all(sweep(net, runs), {"gemm"});
}

// 8-bit integers with zero points, and 16-bit floats: the rests of groups of 4, blocks of 64 and panels of 64.
TEST(EdgeSweep, ProductsOfOtherTypes) {
  Net net;
  const std::string step = net.constant("f32[]", "splat 40.0");
  int turn = 0;
  for (const auto &[k, n] : std::vector<std::pair<int, int>>{
           {3, 1}, {4, 16}, {63, 33}, {64, 64}, {65, 70}, {130, 130}, {192, 80}, {300, 15}}) {
    const int form = turn++;
    const std::string scaled = net.value(fmt::format("Mul({}, {})", net.input(fmt::format("N,{}", k)), step));
    const std::string a = net.value(fmt::format("Cast({})", scaled), form % 2 ? "to = 3" : "to = 2");
    const std::string b_type = form % 4 < 2 ? "i8" : "u8", a_type = form % 2 ? "i8" : "u8";
    const std::string b = net.constant(fmt::format("{}[{},{}]", b_type, k, n), fmt::format("hash \"{}\"", form));
    const std::string az = net.constant(a_type + "[]", "splat 3"),
                      bz = net.constant(fmt::format("{}[{}]", b_type, n), fmt::format("hash \"z{}\"", form));
    net.node(fmt::format("MatMulInteger({}, {}, {}, {})", a, b, az, bz));
  }
  for (const auto &[k, n] : std::vector<std::pair<int, int>>{{3, 1}, {17, 33}, {1030, 66}}) {
    for (const auto &[number, type] : std::vector<std::pair<int, std::string>>{{10, "f16"}, {16, "bf16"}}) {
      const std::string a =
          net.value(fmt::format("Cast({})", net.input(fmt::format("N,{}", k))), fmt::format("to = {}", number));
      net.node(fmt::format("MatMul({}, {})", a,
                           net.constant(fmt::format("{}[{},{}]", type, k, n), fmt::format("hash \"h{}\"", k))));
    }
    net.node(fmt::format("Gemm({}, {})", net.input(fmt::format("{},N", k)), net.weights(fmt::format("{},{}", k, n))),
             "transA = 1, transB = 0, alpha = 1.0, beta = 1.0");
  }
  std::vector<SizedRun> runs;
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 11, 16, 17, 31, 32, 33, 50})
    runs.push_back({{{"N", n}}, Values::kNormal});
  expect_all(sweep(net, runs), {"gemm"});
}

// Convolutions of 8-bit integers, products and convolutions of dequantized ones, and an LSTM of 8-bit weights.
TEST(EdgeSweep, QuantizedNetworks) {
  Net net;
  struct Form {
    int channels, filters, kernel, stride, dilation, group;
  };
  const std::string step = net.constant("f32[]", "[0.0625]"), other = net.constant("f32[]", "[0.03125]");
  int turn = 0;
  for (const Form &f : std::vector<Form>{{3, 5, 3, 2, 1, 1},
                                         {16, 33, 1, 1, 1, 1},
                                         {20, 64, 1, 2, 1, 1},
                                         {8, 16, 3, 1, 2, 1},
                                         {64, 70, 3, 1, 1, 1},
                                         {8, 12, 3, 1, 1, 4},
                                         {33, 33, 3, 1, 1, 33},
                                         {64, 64, 5, 2, 1, 64}}) {
    const int form = turn++;
    const std::string type = form % 2 ? "i8" : "u8", w_type = form % 4 < 2 ? "i8" : "u8";
    const std::string zero = net.constant(type + "[]", "splat 5"), w_zero = net.constant(w_type + "[]", "splat 2");
    const std::string x = net.value(
        fmt::format("QuantizeLinear({}, {}, {})", net.input(fmt::format("1,{},N,N", f.channels)), step, zero));
    const std::string w =
        net.constant(fmt::format("{}[{},{},{},{}]", w_type, f.filters, f.channels / f.group, f.kernel, f.kernel),
                     fmt::format("hash \"q{}\"", form));
    const std::string attributes = fmt::format(
        "dilations = ints [{0}, {0}], group = {1}, kernel_shape = ints [{2}, {2}], pads = ints [{3}, {3}, "
        "{3}, {3}], strides = ints [{4}, {4}], auto_pad = \"NOTSET\"",
        f.dilation, f.group, f.kernel, f.kernel / 2 * f.dilation, f.stride);
    net.node(fmt::format("ConvInteger({}, {}, {}, {})", x, w, zero, w_zero), attributes);
    net.node(fmt::format("QLinearConv({}, {}, {}, {}, {}, {}, {}, {})", x, step, zero, w, other, w_zero, step, zero),
             attributes);
    const std::string a = net.value(fmt::format("DequantizeLinear({}, {}, {})", x, step, zero)),
                      b = net.value(fmt::format("DequantizeLinear({}, {}, {})", w, other, w_zero));
    net.node(fmt::format("Conv({}, {})", a, b), attributes);
  }
  for (const auto &[k, n] : std::vector<std::pair<int, int>>{{3, 1}, {65, 70}, {128, 17}}) {
    const std::string zero = net.constant("u8[]", "splat 130"),
                      scales = net.constant(fmt::format("f32[{}]", n), "splat 0.5");
    const std::string x =
        net.value(fmt::format("QuantizeLinear({}, {}, {})", net.input(fmt::format("N,{}", k)), step, zero));
    const std::string w = net.constant(fmt::format("i8[{},{}]", k, n), fmt::format("hash \"p{}\"", k)),
                      w_zero = net.constant(fmt::format("i8[{}]", n), "splat 0");
    const std::string a = net.value(fmt::format("DequantizeLinear({}, {}, {})", x, step, zero)),
                      b = net.value(fmt::format("DequantizeLinear({}, {}, {})", w, scales, w_zero), "axis = 1");
    net.node(fmt::format("MatMul({}, {})", a, b));
  }
  for (const auto &[input, hidden] : std::vector<std::pair<int, int>>{{3, 5}, {17, 16}}) {
    const std::string w = net.constant(fmt::format("i8[2,{},{}]", input, 4 * hidden), "hash \"lw\""),
                      r = net.constant(fmt::format("i8[2,{},{}]", hidden, 4 * hidden), "hash \"lr\"");
    const std::string scale = net.constant("f32[2]", "splat 0.0078125"), zero = net.constant("i8[2]", "splat 0");
    net.node(fmt::format("com.microsoft.DynamicQuantizeLSTM({}, {}, {}, _, _, _, _, _, {}, {}, {}, {})",
                         net.input(fmt::format("3,N,{}", input)), w, r, scale, zero, scale, zero),
             fmt::format("hidden_size = {}, direction = \"bidirectional\"", hidden));
  }
  std::vector<SizedRun> runs;
  for (const int64_t n : {1, 2, 3, 5, 8, 9, 17, 24}) runs.push_back({{{"N", n}}, Values::kNormal});
  expect_all(sweep(net, runs), {"gemm", "conv.integer", "rnn"});
}

TEST(EdgeSweep, RowsAndMaps) {
  Net net;
  const auto both = [&](const std::string &dims, const std::string &last) {
    const std::string operators[] = {"Softmax", "LogSoftmax"};
    for (const std::string &op : operators) net.node(fmt::format("{}({})", op, net.input(dims)), "axis = -1");
    for (const char *op : {"ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceL2"})
      net.node(fmt::format("{}({})", op, net.input(dims)), "axes = ints [-1], keepdims = 1");
    net.node(fmt::format("ArgMax({})", net.input(dims)), "axis = -1, keepdims = 1, select_last_index = 0");
    net.node(fmt::format("Tanh({})", net.input(dims)));
    net.node(fmt::format("Mul({}, {})", net.input(dims), net.input(last)));
    net.node(fmt::format("Relu({})", net.input(dims)));
  };
  both("N,M", "M");
  both("3,33", "33");
  both("N,16", "16");
  both("2,N,7", "7");
  net.node(fmt::format("ReduceMax({})", net.input("N,M")), "axes = ints [0], keepdims = 1");
  net.node(fmt::format("ReduceSum({})", net.input("M,N,3")), "axes = ints [1], keepdims = 0");
  net.node(fmt::format("Transpose({})", net.input("N,M")), "perm = ints [1, 0]");
  net.node(fmt::format("Add({}, {})", net.input("N,1,M"), net.input("N,5,1")));
  std::vector<SizedRun> runs;
  int64_t n = 0;
  for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 31, 32, 33, 47, 48, 63, 64, 65, 79, 127, 129})
    runs.push_back({{{"N", n++ % 5 + 1}, {"M", m}}, static_cast<Values>(n % 3)});
  expect_all(sweep(net, runs), {"rows", "pointwise"});
}

TEST(EdgeSweep, Windows) {
  Net net;
  // channels, height, width, filters, kernel, strides, dilations, pads (top, left, bottom, right), groups
  struct Conv {
    int c, h, w, f, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups;
  };
  for (const Conv &c : std::vector<Conv>{{3, 11, 9, 20, 3, 3, 2, 2, 1, 1, 1, 0, 1, 2, 1},
                                         {16, 11, 9, 33, 3, 3, 1, 1, 2, 1, 2, 1, 2, 1, 1},
                                         {8, 9, 13, 17, 3, 3, 1, 1, 1, 3, 1, 3, 0, 2, 1},
                                         {7, 1, 19, 24, 1, 5, 1, 2, 1, 1, 0, 2, 0, 1, 1},
                                         {8, 9, 9, 40, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 2},
                                         {20, 6, 7, 70, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1},
                                         {33, 5, 5, 16, 1, 1, 2, 1, 1, 1, 0, 0, 0, 0, 1},
                                         {20, 8, 9, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 20},
                                         {16, 5, 9, 16, 3, 3, 1, 1, 1, 2, 1, 2, 1, 2, 16},
                                         {33, 7, 11, 33, 5, 5, 2, 2, 1, 1, 2, 1, 2, 2, 33},
                                         {16, 7, 9, 16, 3, 3, 1, 2, 2, 1, 1, 1, 2, 0, 16},
                                         {20, 1, 60, 20, 1, 31, 1, 1, 1, 1, 0, 15, 0, 15, 20},
                                         {33, 3, 70, 33, 3, 13, 1, 2, 1, 3, 1, 26, 1, 9, 33},
                                         {5, 2, 50, 17, 1, 25, 1, 1, 1, 1, 0, 20, 0, 3, 1},
                                         {40, 13, 14, 50, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {32, 8, 12, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {32, 7, 7, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {9, 8, 10, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},  // one filter
                                         {20, 6, 7, 1, 5, 4, 2, 1, 1, 2, 2, 2, 2, 3, 1},
                                         {20, 6, 7, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1},
                                         {64, 14, 14, 64, 3, 3, 1, 1, 1, 1, 1, 0, 1, 1, 1}})
    net.node(
        fmt::format("Conv({}, {}, {})", net.input(fmt::format("B,{},{},{}", c.c, c.h, c.w)),
                    net.weights(fmt::format("{},{},{},{}", c.f, c.c / c.groups, c.kh, c.kw)),
                    net.weights(std::to_string(c.f))),
        fmt::format("dilations = ints [{}, {}], group = {}, kernel_shape = ints [{}, {}], pads = ints [{}, {}, {}, "
                    "{}], strides = ints [{}, {}], auto_pad = \"NOTSET\"",
                    c.dh, c.dw, c.groups, c.kh, c.kw, c.top, c.left, c.bottom, c.right, c.sh, c.sw));
  const auto pools = [&](const std::string &dims, const std::string &window) {
    net.node(fmt::format("MaxPool({})", net.input(dims)),
             window + ", auto_pad = \"NOTSET\", ceil_mode = 0, storage_order = 0, dilations = ints [1, 1]");
    for (const int included : {0, 1})
      net.node(fmt::format("AveragePool({})", net.input(dims)),
               fmt::format("{}, auto_pad = \"NOTSET\", ceil_mode = 0, count_include_pad = {}", window, included));
  };
  pools("B,17,7,9", "kernel_shape = ints [3, 3], pads = ints [1, 0, 1, 2], strides = ints [2, 1]");
  pools("B,3,8,5", "kernel_shape = ints [2, 3], pads = ints [0, 1, 1, 1], strides = ints [2, 2]");
  // Places from a table, which lanes gather: rows of a vector, one more and one less, of several.
  for (const auto &[mode, width] : std::vector<std::pair<std::string, int>>{
           {"linear", 15}, {"linear", 16}, {"linear", 37}, {"cubic", 17}, {"cubic", 8}, {"nearest", 33}}) {
    const std::string sizes = net.constant("i64[4]", fmt::format("[1, 5, 11, {}]", width));
    net.node(fmt::format("Resize({}, _, _, {})", net.input("1,5,7,9"), sizes),
             fmt::format("mode = \"{}\", coordinate_transformation_mode = \"pytorch_half_pixel\", nearest_mode = "
                         "\"round_prefer_ceil\", cubic_coeff_a = -0.75, exclude_outside = 0, extrapolation_value = "
                         "0.0, antialias = 0, keep_aspect_ratio_policy = \"stretch\"",
                         mode));
  }
  std::vector<SizedRun> runs;
  for (const int64_t b : {1, 2, 3}) runs.push_back({{{"B", b}}, b == 2 ? Values::kNegative : Values::kNormal});
  expect_all(sweep(net, runs), {"conv.direct", "conv.gemm", "conv.depthwise", "conv.winograd2", "conv.winograd4"});
}

// One to three spatial dims; kernels shorter than, as long as and longer than strides; taps of which most lie outside;
// groups that share a vector, with inputs that are not finite.
TEST(EdgeSweep, TransposedConvolutionsAndVolumes) {
  Net net;
  const auto ints = [](const std::vector<int> &list) { return fmt::format("ints [{}]", fmt::join(list, ", ")); };
  struct Case {
    bool transposed;
    int c, f, groups;
    std::vector<int> in, kernel, strides, dilations, pads, output_padding;
  };
  for (const Case &c :
       std::vector<Case>{{true, 20, 18, 1, {5, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}, {0, 0}},
                         {true, 17, 33, 1, {4, 7}, {4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {0, 0}},
                         {true, 8, 5, 1, {3, 6}, {3, 5}, {2, 3}, {1, 1}, {1, 0, 1, 2}, {1, 2}},
                         {true, 6, 12, 3, {4, 4}, {2, 3}, {3, 1}, {1, 2}, {0, 1, 0, 1}, {1, 0}},
                         {true, 16, 16, 16, {5, 5}, {4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {0, 0}},
                         {true, 24, 3, 1, {6, 5}, {3, 3}, {2, 2}, {2, 3}, {2, 2, 2, 2}, {1, 1}},
                         {true, 16, 24, 1, {9}, {16}, {8}, {1}, {4, 4}, {0}},
                         {true, 18, 1, 1, {6}, {12}, {5}, {1}, {0, 0}, {0}},
                         {true, 5, 9, 1, {3, 2, 4}, {2, 3, 3}, {2, 2, 1}, {1, 1, 1}, {0, 1, 1, 0, 1, 1}, {0, 1, 0}},
                         {false, 16, 20, 1, {4, 5, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, {}},
                         {false, 3, 17, 1, {5, 7, 6}, {3, 2, 3}, {2, 2, 1}, {1, 1, 2}, {1, 0, 2, 1, 1, 0}, {}},
                         {true, 6, 1, 1, {3, 2, 4}, {3, 3, 2}, {2, 1, 2}, {1, 2, 1}, {1, 0, 1, 1, 0, 1}, {1, 0, 0}},
                         {false, 6, 1, 1, {3, 4, 5}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 0, 1, 1}, {}},
                         {false, 12, 12, 12, {3, 4, 5}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, {}},
                         {false, 20, 33, 1, {3, 4, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, {}},
                         {false, 20, 33, 1, {7, 6}, {3, 3}, {1, 1}, {5, 6}, {5, 6, 5, 6}, {}}}) {
    const std::string window = fmt::format("{}", fmt::join(c.kernel, ","));
    const std::string how =
        fmt::format("dilations = {}, group = {}, kernel_shape = {}, pads = {}, strides = {}, auto_pad = \"NOTSET\"",
                    ints(c.dilations), c.groups, ints(c.kernel), ints(c.pads), ints(c.strides));
    const std::string x = net.input(fmt::format("B,{},{}", c.c, fmt::join(c.in, ",")));
    const std::string w = c.transposed ? net.weights(fmt::format("{},{},{}", c.c, c.f / c.groups, window))
                                       : net.weights(fmt::format("{},{},{}", c.f, c.c / c.groups, window));
    const std::string call = fmt::format("({}, {}, {})", x, w, net.weights(std::to_string(c.f)));
    net.node((c.transposed ? "ConvTranspose" : "Conv") + call,
             c.transposed ? how + ", output_padding = " + ints(c.output_padding) : how);
  }
  std::vector<SizedRun> runs;
  for (const int64_t b : {1, 2, 3}) runs.push_back({{{"B", b}}, static_cast<Values>(b - 1)});
  expect_all(sweep(net, runs), {"conv.transposed", "conv.direct", "conv.gemm"});
}

}  // namespace
}  // namespace optc
