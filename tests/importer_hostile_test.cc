// Hostile models: each ends in one clear error of the right kind.
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <functional>

#include "importer/importer.h"

namespace optc {
namespace {

namespace fs = std::filesystem;

onnx::ModelProto parse(const char *text) {
  onnx::ModelProto model;
  onnx::OnnxParser parser(text);
  const auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return model;
}

void expect_error(const std::string &bytes, ErrorKind kind, const std::string &words, const std::string &folder = "") {
  auto owner = std::make_shared<std::string>(bytes);
  Diagnostics diagnostics;
  auto graph = import_bytes(*owner, owner, folder, {}, diagnostics);
  std::string text;
  for (const auto &d : diagnostics.all()) text += format(d);
  ASSERT_FALSE(graph.ok()) << "was taken: " << words;
  EXPECT_EQ(static_cast<int>(graph.failure().kind), static_cast<int>(kind)) << text;
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(diagnostics.all().size(), 1u) << text;
}

const char *const kAdd = R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Add(x, w) })";

onnx::ModelProto with_weight(const std::function<void(onnx::TensorProto &)> &edit) {
  onnx::ModelProto model = parse(kAdd);
  auto *w = model.mutable_graph()->add_initializer();
  w->set_name("w");
  w->set_data_type(onnx::TensorProto::FLOAT);
  w->add_dims(4);
  w->set_raw_data(std::string(16, '\0'));
  edit(*w);
  return model;
}

void expect_weight_error(const std::function<void(onnx::TensorProto &)> &edit, ErrorKind kind,
                         const std::string &words) {
  expect_error(with_weight(edit).SerializeAsString(), kind, words);
}

TEST(Hostile, FilesThatAreNoModel) {
  expect_error("", ErrorKind::kInvalid, "empty");
  expect_error(std::string("\x08"), ErrorKind::kInvalid, "complete");
  expect_error(std::string("\x08\x08", 2), ErrorKind::kInvalid, "no graph");
  const std::string model = parse(kAdd).SerializeAsString();
  for (size_t cut = 1; cut < model.size(); ++cut) {
    auto owner = std::make_shared<std::string>(model.substr(0, cut));
    Diagnostics diagnostics;
    EXPECT_FALSE(import_bytes(*owner, owner, "", {}, diagnostics).ok()) << cut;
    EXPECT_TRUE(diagnostics.has_error()) << cut;
  }
}

TEST(Hostile, DeepNesting) {
  std::string bytes;  // GraphProto -> node -> attribute -> graph ..., with right lengths
  for (int level = 0; level < 400; ++level) {
    for (const char key : {'\x32', '\x2A', '\x0A'}) {  // attribute.g, node.attribute, graph.node
      std::string outer(1, key);
      size_t n = bytes.size();
      for (; n >= 0x80; n >>= 7) outer.push_back(static_cast<char>(n | 0x80));
      outer.push_back(static_cast<char>(n));
      bytes = outer + bytes;
    }
  }
  std::string model = "\x08\x08\x3A";
  size_t n = bytes.size();
  for (; n >= 0x80; n >>= 7) model.push_back(static_cast<char>(n | 0x80));
  model.push_back(static_cast<char>(n));
  expect_error(model + bytes, ErrorKind::kInvalid, "deep");
}

TEST(Hostile, Tensors) {
  expect_weight_error([](auto &w) { w.set_raw_data("1234"); }, ErrorKind::kInvalid, "4 bytes of raw_data");
  expect_weight_error([](auto &w) { w.set_raw_data(std::string(20, 'x')); }, ErrorKind::kInvalid,
                      "20 bytes of raw_data");
  expect_weight_error([](auto &w) { w.set_dims(0, -4); }, ErrorKind::kInvalid, "negative dims [-4]");
  expect_weight_error([](auto &w) { w.clear_data_type(); }, ErrorKind::kInvalid, "no data type");
  expect_weight_error([](auto &w) { w.set_data_type(99); }, ErrorKind::kInvalid, "unknown data type 99");
  expect_weight_error(
      [](auto &w) {
        w.set_dims(0, int64_t{1} << 33);
        w.add_dims(int64_t{1} << 31);
      },
      ErrorKind::kInvalid, "overflows");
  expect_weight_error(
      [](auto &w) {
        w.clear_raw_data();
        w.add_float_data(1);
      },
      ErrorKind::kInvalid, "1 elements");
  expect_weight_error([](auto &w) { w.set_data_type(onnx::TensorProto::STRING); }, ErrorKind::kInvalid, "strings");
  expect_weight_error([](auto &w) { w.set_name(""); }, ErrorKind::kInvalid, "no name");
}

class HostileExternal : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("optc_external_" + std::to_string(::getpid()));
    fs::create_directories(root_ / "model");
    std::ofstream(root_ / "secret") << std::string(64, 's');
    std::ofstream(root_ / "model/w.bin") << std::string(64, 'w');
    fs::create_symlink(root_ / "secret", root_ / "model/link");
    fs::create_directories(root_ / "model/folder");
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string model(const std::string &location, const std::string &offset, const std::string &length = "") {
    return with_weight([&](auto &w) {
             w.clear_raw_data();
             w.set_data_location(onnx::TensorProto::EXTERNAL);
             for (const auto &[key, value] :
                  {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
               if (value.empty() && key != std::string("location")) continue;
               auto *entry = w.add_external_data();
               entry->set_key(key);
               entry->set_value(value);
             }
           })
        .SerializeAsString();
  }
  std::string folder() const { return (root_ / "model").string(); }
  fs::path root_;
};

TEST_F(HostileExternal, Paths) {
  const auto kInvalid = ErrorKind::kInvalid;
  expect_error(model("../secret", ""), kInvalid, "leaves the model's folder", folder());
  expect_error(model("folder/../../secret", ""), kInvalid, "leaves the model's folder", folder());
  expect_error(model((root_ / "secret").string(), ""), kInvalid, "leaves the model's folder", folder());
  expect_error(model("link", ""), kInvalid, "leaves the model's folder", folder());
  expect_error(model("", ""), kInvalid, "empty external data path", folder());
  expect_error(model("folder", ""), kInvalid, "not a regular file", folder());
  expect_error(model("missing.bin", ""), ErrorKind::kIo, "cannot be read", folder());
  expect_error(model("w.bin", ""), ErrorKind::kIo, "no folder");
}

TEST_F(HostileExternal, Sizes) {
  const auto kInvalid = ErrorKind::kInvalid;
  expect_error(model("w.bin", "60"), kInvalid, "run past its end", folder());
  expect_error(model("w.bin", "9223372036854775807"), kInvalid, "run past its end", folder());
  expect_error(model("w.bin", "-1"), kInvalid, "not a number", folder());
  expect_error(model("w.bin", "99999999999999999999999"), kInvalid, "not a number", folder());
  expect_error(model("w.bin", "0", "8"), kInvalid, "8 bytes of external data", folder());
  auto owner = std::make_shared<std::string>(model("w.bin", "48", "16"));
  Diagnostics diagnostics;
  EXPECT_TRUE(import_bytes(*owner, owner, folder(), {}, diagnostics).ok());
}

void expect_text_error(const char *text, ErrorKind kind, const std::string &words) {
  expect_error(parse(text).SerializeAsString(), kind, words);
}

TEST(Hostile, Graphs) {
  const auto kInvalid = ErrorKind::kInvalid;
  expect_text_error(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)
    { y = Add(b, x)  a = Neg(y)  b = Abs(a) })",
                    kInvalid, "the graph has a cycle: Add_0 -> Neg_1 -> Abs_2 -> Add_0");
  expect_text_error(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Add(x, ghost) })",
                    kInvalid, "'ghost' is not defined");
  expect_text_error(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { z = Neg(x) })",
                    kInvalid, "'y' has no producer");
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Neg(x)  y = Abs(x) })", kInvalid,
      "'y' is defined twice");
  // An initializer's name as an output of a node before which it is read: no cycle.
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) <float[1] w = {1}>
         { a = Add(x, w)  w = Neg(a)  y = Abs(w) })",
      kInvalid, "'w' is defined twice");
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, float[4] x) => (float[4] y) { y = Neg(x) })", kInvalid,
      "'x' is defined twice");
  expect_text_error(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Add(x) })",
                    kInvalid, "Add");
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Softmax <axis = 0.5> (x) })",
      kInvalid, "axis");
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64[4] i) => (float[4] y) { y = Add(x, i) })",
      kInvalid, "tensor(int64)");
  expect_text_error(R"(<ir_version: 8, opset_import: ["" : 17]> g (seq(float[4]) x) => (float[4] y) { y = Relu(x) })",
                    kInvalid, "takes tensors");
  expect_text_error(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (int64[4] y) { y = Neg(x) })",
                    kInvalid, "declared");
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 18]> g (float[4] x, int64[1,1] a) => (float[1] y) { y = ReduceSum(x, a) })",
      kInvalid, "axes must have one dimension");
  expect_text_error(
      R"(<ir_version: 11, opset_import: ["" : 24]> g (float[1,1,2,4] q) => (float[1,1,2,4] y, float[1,1,2,2] s)
         { y, , , s = Attention <qk_matmul_output_mode = 4> (q, q, q) })",
      kInvalid, "none of 0 to 3");
  for (const char *flag : {"2", "-1"})
    expect_text_error((R"(<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[1] y)
                          { y = ReduceSum <keepdims = )" +
                       std::string(flag) + "> (x) }")
                          .c_str(),
                      kInvalid, "it says yes by 1 and no by 0");
}

TEST(Hostile, AnOutputPaddingIsSmallerThanItsStride) {
  for (const char *padding : {"2", "-1"})
    expect_text_error(
        (R"(<ir_version: 8, opset_import: ["" : 13]> g (float[1,1,4] x, float[1,1,3] w) => (float[1,1,m] y)
         { y = ConvTranspose <strides = [2], output_padding = [)" +
         std::string(padding) + "]> (x, w) }")
            .c_str(),
        ErrorKind::kInvalid, "output_padding");
}

// A dim that another node bounds is said with its bounds: the two that do not match seem to, otherwise.
TEST(Hostile, ADimThatCannotBeIsSaidWithItsBounds) {
  expect_text_error(
      R"(<ir_version: 8, opset_import: ["" : 13]> g (float[1,1,d,4] x) => (float[1,1,m,4] p, float[1,1,1,4] a, float[1,1,1,4] b)
         <int64[2] s = {1, 1}> { p = MaxPool <kernel_shape = [3, 1]> (x) a, b = Split <axis = 2> (x, s) })",
      ErrorKind::kInvalid, "d (3 or more");
}

// Operands that kernels would read beside: inference says what they must be.
TEST(Hostile, OperandsThatDoNotReach) {
  const auto one = [](const std::string &signature, const std::string &node, const std::string &words) {
    const std::string text = "<ir_version: 10, opset_import: [\"\" : 24]> g (" + signature + ") { " + node + " }";
    expect_text_error(text.c_str(), ErrorKind::kInvalid, words);
  };
  const std::string heads = "float[2,1,3,4] q, float[2,1,5,4] k";
  one(heads + ", float[1,1,5,4] v) => (float[2,1,3,4] y", "y = Attention(q, k, v)", "the batch of K and V");
  one(heads + ", float[2,2,5,4] v) => (float[2,1,3,4] y", "y = Attention(q, k, v)", "the number of heads of K and V");
  one(heads + ", float[2,1,5,4] v, float[3,1,1] m) => (float[2,1,3,4] y", "y = Attention(q, k, v, m)",
      "a dimension of attn_mask");
  one(heads + ", float[2,1,5,4] v, float[2,1,2,4] pk, float[2,1,3,4] pv) => (float[2,1,3,4] y",
      "y = Attention(q, k, v, , pk, pv)", "dimension 2 of past_value");
  one("float[3,5] x, int64[3] l, float[4] w) => (float y", "y = NegativeLogLikelihoodLoss(x, l, w)",
      "the number of weights and of classes");
  one("float[2,3,2] t, int64[4] s) => (float[2,a,b,2] y", "y = AffineGrid(t, s)", "the rows of theta");
  one("float[2,0] x) => (int64[2] y", "y = ArgMax <axis = 1, keepdims = 0> (x)", "one element and the axis");
  const std::string lstm = "float[3,2,4] x, float[2,20,4] w, float[2,20,5] r";
  one(lstm + ", float[1,15] p) => (float[3,2,2,5] y",
      "y = LSTM <direction = \"bidirectional\", hidden_size = 5> (x, w, r, , , , , p)",
      "the number of directions of P");
  one("float[2,6,3] c, float[2,1,3] u, int64[1] i) => (float[2,6,3] y", "y = TensorScatter(c, u, i)",
      "the length of write_indices");
  one("float[1,16,1] x, int64 s, float[1,8] w) => (float[1,a,b,2] y", "y = STFT(x, s, w)",
      "the window must be a vector");
  one("float[1,1,2,2] x, int64[1,1,2,1] i) => (float[1,1,2,2] y", "y = MaxUnpool <kernel_shape = [1, 1]> (x, i)",
      "of the values and of their indices");
  one("float[1,1,2,2] x, int64[1,1,2,2] i) => (float[1,1,3,3] y",
      "s = Constant <value_ints = [1, 1, 3, 3]> () y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, s)",
      "what the window spans");
  one("float[2,3] x, float s, uint8[0] z) => (uint8[2,3] y", "y = QuantizeLinear(x, s, z)",
      "the length of the zero point");
  one("uint8[2,3] a, uint8[3,4] b, uint8 z, uint8[3] w) => (int32[2,4] y", "y = MatMulInteger(a, b, z, w)",
      "a scale or zero point");
  one("uint8[1,2,4,4] x, uint8[3,2,1,1] w, uint8 z, uint8[2] v) => (int32[1,3,4,4] y", "y = ConvInteger(x, w, z, v)",
      "w_zero_point");
  one("float[1,1,4,4] x, float[1,1,1,1] w, float[1,2,4,4] o) => (float[1,1,4,4] y",
      "y = DeformConv <strides = [1]> (x, w, o)", "strides must have 2 entries");
  one("float[4] x, int64[3] s) => (float[a] y, float[b] z", "y, z = Split(x, s)", "3 entries for 2 outputs");
  one("float[4,4] x, int64[2] k) => (float[4,4] y", "y = Trilu(x, k)", "the length of k");
  one("float[4] x) => (float[a] y",
      "s = Shape(x) t = Constant <value_ints = [5]> () n = Sub(s, t) y = ConstantOfShape(n)", "entry -1");
}

TEST(Hostile, Functions) {
  expect_text_error(
      R"(<ir_version: 9, opset_import: ["" : 18, "local" : 1]> g (float[4] x) => (float[4] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 18, "local" : 1]> f (a) => (b) { b = local.f(a) })",
      ErrorKind::kInvalid, "local.f calls itself");
  expect_text_error(
      R"(<ir_version: 9, opset_import: ["" : 18, "local" : 1]> g (float[4] x) => (float[4] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 18, "local" : 1]> f (a) => (b) { b = local.h(a) }
    <domain: "local", opset_import: ["" : 18, "local" : 1]> h (a) => (b) { b = local.f(a) })",
      ErrorKind::kInvalid, "local.f calls itself through function local.h");
  expect_text_error(
      R"(<ir_version: 9, opset_import: ["" : 18, "local" : 1]> g (float[4] x) => (float[4] y) { y = local.f("") }
    <domain: "local", opset_import: ["" : 18]> f (a) => (b) { b = Clip(a) })",
      ErrorKind::kInvalid, "is required, but absent");
  // Twenty-four functions that each call the next one twice: 2^24 nodes.
  std::string text =
      R"(<ir_version: 9, opset_import: ["" : 18, "local" : 1]> g (float[4] x) => (float[4] y) { y = local.f0(x) })";
  for (int i = 0; i < 24; ++i) {
    const std::string next = "local.f" + std::to_string(i + 1);
    text += "\n<domain: \"local\", opset_import: [\"\" : 18, \"local\" : 1]> f" + std::to_string(i) +
            " (a) => (b) { t = " + next + "(a)  b = " + next + "(t) }";
  }
  text += "\n<domain: \"local\", opset_import: [\"\" : 18]> f24 (a) => (b) { b = Neg(a) }";
  expect_text_error(text.c_str(), ErrorKind::kUnsupported, "nodes");
}

TEST(Hostile, UnsupportedOperatorsAreListedAtOnce) {
  auto owner = std::make_shared<std::string>(parse(R"(<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
    g (float[4] x) => (float[4] y) { a = com.acme.Decode(x)  b = com.acme.Decode(a)  c = com.acme.Hash(b)  y = Neg(c) })")
                                                 .SerializeAsString());
  Diagnostics diagnostics;
  auto graph = import_bytes(*owner, owner, "", {}, diagnostics);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.failure().kind, ErrorKind::kUnsupported);
  ASSERT_EQ(diagnostics.all().size(), 1u);
  const Diagnostic &d = diagnostics.all()[0];
  EXPECT_EQ(d.message, "2 operators of the model have no implementation");
  ASSERT_EQ(d.places.size(), 2u);
  EXPECT_EQ(d.places[0], "node 'Decode_0' (#0): com.acme.Decode-1, 2 nodes");
  EXPECT_EQ(d.places[1], "node 'Hash_2' (#2): com.acme.Hash-1");
}

TEST(Hostile, Versions) {
  auto model = parse(kAdd);
  model.set_ir_version(99);
  expect_error(model.SerializeAsString(), ErrorKind::kUnsupported, "IR version 99");
  model = parse(kAdd);
  model.mutable_opset_import(0)->set_version(99);
  expect_error(model.SerializeAsString(), ErrorKind::kUnsupported, "opset version 99");
  model.clear_opset_import();
  expect_error(model.SerializeAsString(), ErrorKind::kInvalid, "no operator set");
}

}  // namespace
}  // namespace optc
