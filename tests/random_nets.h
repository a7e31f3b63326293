#pragma once
// Small random graphs as text, made of what fusion, layout and views meet: parts of a tensor from several kernels
// (Concat, Scatter), slices, reshapes and transposes of every kind, products, convolutions and rows with maps before
// and behind them, values with several readers, outputs in the middle, values that a branch captures.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace optc {

class RandomNet {
 public:
  // The size that stands for N while the graph is drawn; other sizes stay below it.
  static constexpr int64_t kBatch = 7;

  explicit RandomNet(uint32_t seed) : random_(seed) {}

  std::string text() {
    const bool batched = coin(2);
    const Dims first = spatial_first() ? Dims{batched ? kBatch : pick(1, 2), pick(1, 4), pick(1, 5), pick(1, 5)}
                                       : Dims{batched ? kBatch : pick(1, 3), pick(1, 6)};
    Dims second = first;
    if (coin(2)) second.back() = pick(1, 6);
    add_input("x", first);
    add_input("z", second);
    const int64_t count = pick(3, 11);
    for (int64_t tries = 0; tries < 60 && made_ < count; ++tries) step();
    // The last value, and some in the middle.
    std::vector<std::string> outputs{values_.back().name};
    for (size_t i = 2; i + 1 < values_.size(); ++i)
      if (coin(7)) outputs.push_back(values_[i].name);
    std::string head = "graph \"net\" (", tail = ") -> (";
    for (size_t i = 0; i < 2; ++i) head += (i ? ", " : "") + values_[i].name + ": f32" + dims(values_[i].shape);
    for (size_t i = 0; i < outputs.size(); ++i) tail += (i ? ", " : "") + outputs[i];
    return head + ", flag: bool[]" + tail + ") {\n  opset \"\" 17\n" + constants_ + nodes_ + "}\n";
  }

 private:
  using Dims = std::vector<int64_t>;
  struct Value {
    std::string name;
    Dims shape;
  };

  int64_t pick(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_() % (high - low + 1)); }
  bool coin(uint32_t one_in) { return random_() % one_in == 0; }
  bool spatial_first() { return coin(2); }
  // Younger values more often: chains.
  const Value &any() {
    const size_t n = values_.size(), back = std::min(random_() % n, random_() % n);
    return values_[n - 1 - back];
  }
  size_t axis_of(const Dims &shape) { return random_() % shape.size(); }

  static std::string dims(const Dims &shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i)
      text += (i ? "," : "") + (shape[i] == kBatch ? std::string("N") : std::to_string(shape[i]));
    return text + "]";
  }
  static std::string list(const Dims &values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
    return text + "]";
  }
  void add_input(const std::string &name, Dims shape) { values_.push_back({name, std::move(shape)}); }
  std::string integers(const Dims &values) {
    const std::string name = "c" + std::to_string(constant_++);
    constants_ += "  const " + name + ": i64[" + std::to_string(values.size()) + "] = " + list(values) + "\n";
    return name;
  }
  std::string weights(const Dims &shape) {
    const std::string name = "w" + std::to_string(constant_++);
    constants_ +=
        "  const " + name + ": f32" + dims(shape) + " = hash \"" + name + std::to_string(random_() % 9) + "\"\n";
    return name;
  }
  static bool is_static(const Dims &shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d < kBatch; });
  }
  static int64_t elements(const Dims &shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }

  std::string node(const std::string &call, Dims shape) {
    const std::string name = "v" + std::to_string(values_.size());
    nodes_ += "  " + name + " = " + call + "\n";
    values_.push_back({name, std::move(shape)});
    ++made_;
    return name;
  }

  void step() {
    const Value v = any();
    const Dims &s = v.shape;
    switch (random_() % 20) {
      case 0:
      case 1: {
        static constexpr const char *kUnary[] = {"Relu", "Tanh", "Neg", "Abs", "Sigmoid", "Identity"};
        return (void)node(std::string(kUnary[random_() % 6]) + "(" + v.name + ")", s);
      }
      case 2:
      case 3:
        return binary(v);
      case 4:
      case 5:
        if (s.back() < kBatch) {
          Dims to = s;
          to.back() = pick(1, 6);
          node("MatMul(" + v.name + ", " + weights({s.back(), to.back()}) + ")", to);
        }
        return;
      case 6:
        return (void)node("Softmax(" + v.name + ") {axis = " + std::to_string(axis_of(s)) + "}", s);
      case 7: {
        Dims to = s;
        const size_t axis = axis_of(s);
        to[axis] = 1;
        return (void)node("ReduceSum(" + v.name + ", " + integers({static_cast<int64_t>(axis)}) + ") {keepdims = 1}",
                          to);
      }
      case 8:
      case 9:
      case 10:
        return concat(v);
      case 11:
        return slice(v);
      case 12:
        return transpose(v);
      case 13:
        return reshape(v);
      case 14:
        return scatter(v);
      case 15:
        return pad(v);
      case 16:
      case 17:
        return convolution(v);
      case 18:
        return branch(v);
      default:
        return split(v);
    }
  }

  void binary(const Value &v) {
    static constexpr const char *kOps[] = {"Add", "Mul", "Sub", "Max"};
    const std::string op = kOps[random_() % 4];
    std::vector<const Value *> same;
    for (const Value &o : values_)
      if (o.shape == v.shape) same.push_back(&o);
    if (!coin(3))
      node(op + "(" + v.name + ", " + same[random_() % same.size()]->name + ")", v.shape);
    else if (v.shape.back() < kBatch)
      node(op + "(" + v.name + ", " + weights({coin(3) ? 1 : v.shape.back()}) + ")", v.shape);
  }

  void concat(const Value &v) {
    const size_t axis = axis_of(v.shape);
    std::string call = "Concat(" + v.name;
    Dims to = v.shape;
    for (int64_t more = pick(1, 2); more > 0; --more) {
      std::vector<Value> fit;
      for (const Value &o : values_) {
        if (o.shape.size() != to.size()) continue;
        bool same = true;
        for (size_t k = 0; k < to.size(); ++k) same = same && (k == axis || o.shape[k] == to[k]);
        if (same) fit.push_back(o);
      }
      const Value &other = fit[random_() % fit.size()];
      call += ", " + other.name;
      to[axis] += other.shape[axis];
    }
    // Above the size that stands for N only multiples of it are told apart.
    if (to[axis] >= kBatch && (v.shape[axis] < kBatch || to[axis] % kBatch != 0)) return;
    if (to[axis] > kBatch) return;
    node(call + ") {axis = " + std::to_string(axis) + "}", to);
  }

  void slice(const Value &v) {
    const size_t axis = axis_of(v.shape);
    if (v.shape[axis] >= kBatch) return;
    const int64_t from = pick(0, v.shape[axis] - 1), to = pick(from + 1, v.shape[axis]);
    Dims shape = v.shape;
    shape[axis] = to - from;
    node("Slice(" + v.name + ", " + integers({from}) + ", " + integers({to}) + ", " +
             integers({static_cast<int64_t>(axis)}) + ")",
         shape);
  }

  void split(const Value &v) {
    const size_t axis = axis_of(v.shape);
    const int64_t all = v.shape[axis];
    if (all >= kBatch || all < 2) return;
    const int64_t part = pick(1, all - 1);
    Dims a = v.shape, b = v.shape;
    a[axis] = part;
    b[axis] = all - part;
    const std::string left = "v" + std::to_string(values_.size()), right = "v" + std::to_string(values_.size() + 1);
    nodes_ += "  " + left + ", " + right + " = Split(" + v.name + ", " + integers({part, all - part}) +
              ") {axis = " + std::to_string(axis) + "}\n";
    values_.push_back({left, a});
    values_.push_back({right, b});
    ++made_;
  }

  void transpose(const Value &v) {
    Dims perm(v.shape.size()), shape;
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
    std::shuffle(perm.begin(), perm.end(), random_);
    for (int64_t p : perm) shape.push_back(v.shape[static_cast<size_t>(p)]);
    node("Transpose(" + v.name + ") {perm = ints " + list(perm) + "}", shape);
  }

  void reshape(const Value &v) {
    // Unit dims in or out, two dims into one, one into two: the leading one is -1 when it may be N.
    Dims to = v.shape;
    const size_t at = random_() % to.size();
    switch (random_() % 3) {
      case 0:
        if (to.size() > 4) return;
        to.insert(to.begin() + static_cast<std::ptrdiff_t>(at), 1);
        break;
      case 1:
        if (to.size() < 2) return;
        for (size_t i = 0; i < to.size(); ++i)
          if (to[i] == 1) {
            to.erase(to.begin() + static_cast<std::ptrdiff_t>(i));
            break;
          }
        if (to == v.shape) {
          const size_t i = random_() % (to.size() - 1);
          if (to[i] * to[i + 1] >= kBatch) return;
          to[i] *= to[i + 1];
          to.erase(to.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
        break;
      default:
        if (to.size() > 4 || to[at] >= kBatch || to[at] % 2 != 0) return;
        to[at] /= 2;
        to.insert(to.begin() + static_cast<std::ptrdiff_t>(at), 2);
    }
    Dims target = to;
    for (int64_t &d : target)
      if (d >= kBatch) d = -1;
    node("Reshape(" + v.name + ", " + integers(target) + ") {allowzero = 0}", to);
  }

  void scatter(const Value &v) {
    // Rows of axis 0, from another value of one row less or as a constant.
    if (v.shape[0] >= kBatch || v.shape.size() < 2) return;
    const int64_t rows = pick(1, v.shape[0]);
    Dims indices;
    for (int64_t i = 0; i < rows; ++i) indices.push_back(pick(0, v.shape[0] - 1));
    Dims part = v.shape;
    part[0] = rows;
    std::string updates;
    for (const Value &o : values_)
      if (o.shape == part) updates = o.name;
    if (updates.empty() && !is_static(part)) return;
    if (updates.empty()) updates = weights(part);
    const std::string name = "c" + std::to_string(constant_++);
    constants_ += "  const " + name + ": i64[" + std::to_string(rows) + ",1] = " + list(indices) + "\n";
    node(
        "ScatterND(" + v.name + ", " + name + ", " + updates + ") {reduction = \"" + (coin(2) ? "none" : "add") + "\"}",
        v.shape);
  }

  void pad(const Value &v) {
    const size_t rank = v.shape.size(), axis = axis_of(v.shape);
    if (v.shape[axis] >= kBatch) return;
    Dims pads(2 * rank, 0), to = v.shape;
    pads[axis] = pick(0, 1);
    pads[rank + axis] = pick(0, 1);
    to[axis] += pads[axis] + pads[rank + axis];
    if (to[axis] >= kBatch) return;
    node("Pad(" + v.name + ", " + integers(pads) + ")", to);
  }

  void convolution(const Value &v) {
    if (v.shape.size() < 3 || v.shape.size() > 4) return;
    for (size_t i = 1; i < v.shape.size(); ++i)
      if (v.shape[i] >= kBatch) return;
    const size_t space = v.shape.size() - 2;
    if (coin(4)) {
      node("MaxPool(" + v.name + ") {kernel_shape = ints " + list(Dims(space, 3)) + ", pads = ints " +
               list(Dims(2 * space, 1)) + ", strides = ints " + list(Dims(space, 1)) + "}",
           v.shape);
      return;
    }
    const int64_t kernel = coin(2) ? 1 : 3, channels = v.shape[1];
    const bool depthwise = coin(3);
    Dims weight{depthwise ? channels : pick(1, 5), depthwise ? 1 : channels}, to = v.shape;
    for (size_t i = 0; i < space; ++i) weight.push_back(kernel);
    to[1] = weight[0];
    node("Conv(" + v.name + ", " + weights(weight) + ") {dilations = ints " + list(Dims(space, 1)) + ", group = " +
             std::to_string(depthwise ? channels : 1) + ", kernel_shape = ints " + list(Dims(space, kernel)) +
             ", pads = ints " + list(Dims(2 * space, kernel / 2)) + ", strides = ints " + list(Dims(space, 1)) + "}",
         to);
  }

  void branch(const Value &v) {
    // Both branches capture values from around them.
    std::vector<std::string> same;
    for (const Value &o : values_)
      if (o.shape == v.shape) same.push_back(o.name);
    const std::string id = std::to_string(values_.size()), a = same[random_() % same.size()];
    const std::string name = "v" + id;
    nodes_ += "  " + name + " = If(flag) @ \"if" + id + "\"\n    region then_branch () -> (t" + id + ") {\n      s" +
              id + " = Relu(" + v.name + ")\n      t" + id + " = Add(s" + id + ", " + a +
              ")\n    }\n    region else_branch () -> (e" + id + ") {\n      e" + id + " = Neg(" + v.name +
              ")\n    }\n";
    values_.push_back({name, v.shape});
    ++made_;
  }

  std::mt19937 random_;
  std::vector<Value> values_;
  std::string constants_, nodes_;
  int64_t made_ = 0;
  int constant_ = 0;
};

}  // namespace optc
