// LSTM, GRU and RNN layers by runtime/cpu/rnn.h, LSTM of 8-bit weights by rnn_i8.h: one function a node, both
// directions.
#include <fmt/format.h>

#include "emit/cpp/nest.h"
#include "emit/cpp/types.h"
#include "ir/program/recurrent.h"
#include "runtime/cpu/rnn_plan.h"

namespace optc {
namespace {

// OptcRnnActivation (runtime/cpu/rnn_plan.h), in the order of CellActivation.
constexpr const char *kActivations[] = {
    "OPTC_SIGMOID",     "OPTC_TANH",         "OPTC_RELU", "OPTC_AFFINE",   "OPTC_LEAKY_RELU", "OPTC_THRESHOLDED_RELU",
    "OPTC_SCALED_TANH", "OPTC_HARD_SIGMOID", "OPTC_ELU",  "OPTC_SOFTSIGN", "OPTC_SOFTPLUS"};

std::string float_text(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return constant_text(ElementType::kFloat32, bits).s;
}

class RecurrentPrinter : private DimText {
 public:
  RecurrentPrinter(const Program &program, const Kernel &kernel)
      : program_(program), kernel_(kernel), call_(*kernel.library()) {
    for (const char *name : {"rows", "means", "plan", "tasks", "scratch", "t", "begin", "end", "forward", "backward"})
      names_.unique(name, 16);  // of the code around
  }

  KernelText print() {
    const auto &s = std::get<RecurrentSchedule>(kernel_.schedule);
    gates_ = s.gates;
    input_ = s.input;
    hidden_ = s.hidden;
    directions_ = static_cast<int64_t>(s.layers.size());
    integers_ = s.weights != ElementType::kFloat32;
    const bool layout = s.batch_first;
    const Shape &x = program_.buffer(call_.inputs[0]).shape();
    const Dim steps = x[layout ? 1 : 0], batch = x[layout ? 0 : 1];
    const std::string in = buffer(call_.inputs[0], false, "x");
    std::vector<Weights> weights;
    for (const RecurrentSchedule::Layer &layer : s.layers)
      weights.push_back({matrix(s, layer.w, layer.w_scale, layer.w_zeros, layer.w_zero, "w"),
                         matrix(s, layer.r, layer.r_scale, layer.r_zeros, layer.r_zero, "r"),
                         buffer(layer.bias.buffer, false, "bias")});
    const std::string h0 = operand(5, "initial_h"), c0 = gates_ == 4 ? operand(6, "initial_c") : "",
                      p = gates_ == 4 ? operand(7, "peepholes") : "";
    const std::string y = result(0, "y"), y_h = result(1, "y_h"), y_c = gates_ == 4 ? result(2, "y_c") : "",
                      sums = buffer(s.sums.buffer, true, "sums"),
                      bytes = integers_ ? buffer(s.bytes.buffer, true, "bytes") : "";
    const std::string t = dim(steps), n = dim(batch), n_factor = dim(batch, kUnaryPrecedence),
                      t_factor = dim(steps, kUnaryPrecedence);
    const std::string state_row = std::to_string(layout ? directions_ * hidden_ : hidden_);
    line(1, fmt::format("const int64_t rows = {} * {};", t_factor, n_factor));
    if (integers_)
      line(1, fmt::format("const RnnI8Scale means = rnn_i8_quantize({}, rows * {}, {});", in, input_, bytes));
    line(1, fmt::format("const {0} plan = {1}_plan(rows, {2}, {3}, env.threads, {4});",
                        integers_ ? "OptcGemmI8" : "OptcGemm", integers_ ? "optc_gemm_i8" : "optc_gemm",
                        gates_ * hidden_, input_, directions_));
    line(1, fmt::format("const int64_t tasks = {}_tasks(plan);", integers_ ? "optc_gemm_i8" : "optc_gemm"));
    // Sums of each direction: [rows, gates * hidden].
    const auto sums_of = [&](int64_t d) {
      return d == 0 ? sums : fmt::format("{} + rows * {}", sums, d * gates_ * hidden_);
    };
    line(1, fmt::format("parallel(env, tasks * {}, 1, [&](int64_t begin, int64_t end, uint8_t *{}) OPTC_TASK {{",
                        directions_, integers_ ? "scratch" : ""));
    line(2, "for (int64_t t = begin; t < end; ++t)");
    for (int64_t d = 0; d < directions_; ++d) {
      const std::string layer = fmt::format("{}_layer{}", kernel_.name, d);
      prologue_ += fmt::format(
          "struct {} {{\n  static constexpr OptcRnn kRnn = {};  // kind, input, hidden, linear_before_reset, "
          "input_forget, clip, activations, alpha, beta\n}};\n",
          layer, literal(d));
      const auto &[w, r, b] = weights[static_cast<size_t>(d)];
      if (directions_ > 1) line(3, d == 0 ? "if (t < tasks)" : "else");
      const std::string t_name = d == 0 ? "t" : "t - tasks";
      line(directions_ > 1 ? 4 : 3,
           integers_ ? fmt::format("rnn_i8_inputs<{}>(plan, {}, {}, means, {}, {}, {}, scratch);", layer, t_name, bytes,
                                   w, b, sums_of(d))
                     : fmt::format("rnn_inputs<{}>(plan, {}, {}, {}, {}, {});", layer, t_name, in, w, b, sums_of(d)));
    }
    line(1, "});");
    std::string walked;
    for (int64_t d = 0; d < directions_; ++d) {
      const std::string layer = fmt::format("{}_layer{}", kernel_.name, d);
      const auto &[w, r, b] = weights[static_cast<size_t>(d)];
      const bool reverse = s.reverse || d == 1;
      const std::string walk = reverse ? "backward" : "forward";
      walked += ", " + walk;
      line(1, fmt::format("{}<{}> {} = {{{{}}, {}, {} + {}}};", integers_ ? "RnnI8Direction" : "RnnDirection", layer,
                          walk, r, b, gates_ * hidden_));
      line(1, fmt::format("{0}.run.seq = {1}, {0}.run.batch = {2}, {0}.run.reverse = {3}, {0}.run.sums = {4};", walk, t,
                          n, reverse ? "true" : "false", sums_of(d)));
      line(1, layout ? fmt::format("{0}.run.sum_step = 1, {0}.run.sum_row = {1};", walk, t)
                     : fmt::format("{0}.run.sum_step = {1}, {0}.run.sum_row = 1;", walk, n));
      // y: [steps, directions, batch, hidden], with layout 1 [batch, steps, directions, hidden].
      if (!y.empty() && layout)
        line(1, fmt::format("{0}.run.y = {1} + {2}, {0}.run.y_step = {3}, {0}.run.y_row = {4} * {3};", walk, y,
                            d * hidden_, directions_ * hidden_, t_factor));
      else if (!y.empty())
        line(1, fmt::format("{0}.run.y = {1} + {2} * {3}, {0}.run.y_step = {2} * {4}, {0}.run.y_row = {5};", walk, y,
                            n_factor, d * hidden_, directions_ * hidden_, hidden_));
      // States: [directions, batch, hidden], with layout 1 [batch, directions, hidden].
      const std::string state = layout ? std::to_string(d * hidden_) : fmt::format("{} * {}", n_factor, d * hidden_);
      if (!h0.empty()) line(1, fmt::format("{}.run.initial_h = {} + {};", walk, h0, state));
      if (!c0.empty()) line(1, fmt::format("{}.run.initial_c = {} + {};", walk, c0, state));
      if (!y_h.empty()) line(1, fmt::format("{}.run.y_h = {} + {};", walk, y_h, state));
      if (!y_c.empty()) line(1, fmt::format("{}.run.y_c = {} + {};", walk, y_c, state));
      line(1, fmt::format("{0}.run.initial_row = {0}.run.final_row = {1};", walk, state_row));
      if (!p.empty()) line(1, fmt::format("{}.run.peepholes = {} + {};", walk, p, d * 3 * hidden_));
    }
    line(1, fmt::format("rnn_walk(env{});", walked));
    KernelText text;
    text.name = kernel_.name;
    text.parameters = "[[maybe_unused]] const Env &env";
    for (size_t i = 0; i < buffers_.size(); ++i) {
      text.buffers.push_back(buffers_[i]);
      text.written.push_back(written_[i]);
      text.parameters += fmt::format(", {}{} *{}", written_[i] ? "" : "const ",
                                     cpp_type(program_.buffer(buffers_[i]).element()).storage, buffer_names_[i]);
    }
    for (const auto &[symbol, name] : symbols_) {
      text.symbols.push_back(symbol);
      text.parameters += ", int64_t " + name;
    }
    text.headers = {integers_ ? "runtime/cpu/rnn_i8.h" : "runtime/cpu/rnn.h"};
    text.plan_headers = {"runtime/cpu/gemm_plan.h", "runtime/cpu/rnn_plan.h"};
    text.panels = integers_ ? kNoPanels
                            : panel_bits(optc_gemm_panels(gates_ * hidden_)) |
                                  panel_bits(optc_gemm_panels(gates_ * kOptcRnnUnits)) |
                                  panel_bits(optc_gemm_panels(kOptcRnnUnits)) |
                                  panel_bits(optc_gemm_panels(2 * kOptcRnnUnits));
    text.scratch_bytes = s.scratch_bytes;
    const std::string function =
        "static OPTC_KERNEL void " + kernel_.name + "(" + text.parameters + ") {\n" + out_ + "}\n";
    text.text = prologue_ +
                fmt::format("// {}, {} to {}, {} direction{}\n", comment_text(kernel_.note), input_, hidden_,
                            directions_, directions_ == 1 ? "" : "s") +
                function;
    text.form = without_names(prologue_ + function, names_, kernel_.name);
    return text;
  }

 private:
  struct Weights {  // of a direction, as arguments
    std::string w, r, bias;
  };
  std::string matrix(const RecurrentSchedule &s, const Packed &packed, const Packed &scale, const Packed &zeros,
                     int64_t zero, const std::string &role) {
    const std::string panels = buffer(packed.buffer, false, role);
    if (!integers_) return panels;
    const auto is_one = [&](const Packed &p) { return program_.buffer(p.buffer).constant.count() == 1; };
    const std::string scales = buffer(scale.buffer, false, role + "_scale");
    return fmt::format(
        "RnnI8Weights{{{}, {}, gemm_zero({}), {}, {}}}", panels, s.weights == ElementType::kInt8,
        zeros.buffer.valid() ? buffer(zeros.buffer, false, role + "_zeros") + ", 1" : std::to_string(zero), scales,
        is_one(scale) ? 0 : 1);
  }
  std::string symbol(const DimSymbol &s) override {
    for (const auto &[known, name] : symbols_)
      if (known == &s) return name;
    symbols_.emplace_back(&s, names_.unique(s.name, 32));
    return symbols_.back().second;
  }
  void line(int indent, const std::string &text) {
    out_ += std::string(static_cast<size_t>(indent) * 2, ' ') + text + "\n";
  }
  // The parameter of a buffer, named `role` where it is a new one.
  std::string buffer(BufferId b, bool written, const std::string &role) {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i] == b) {
        written_[i] = written_[i] || written;
        return buffer_names_[i];
      }
    buffers_.push_back(b);
    written_.push_back(written);
    buffer_names_.push_back(names_.unique(role, 40));
    return buffer_names_.back();
  }
  std::string operand(size_t i, const char *role) {
    return i < call_.inputs.size() && call_.inputs[i].valid() ? buffer(call_.inputs[i], false, role) : "";
  }
  std::string result(size_t i, const char *role) {
    return i < call_.outputs.size() && call_.outputs[i].valid() ? buffer(call_.outputs[i], true, role) : "";
  }
  // The OptcRnn of a direction, whose activations lowering has looked at.
  std::string literal(int64_t direction) const {
    const RecurrentCell cell = *recurrent_cell(call_, direction);
    std::string kinds, alpha, beta;
    for (const CellFunction &f : cell.functions) {
      const char *comma = kinds.empty() ? "" : ", ";
      kinds += comma + std::string(kActivations[static_cast<size_t>(f.kind)]);
      alpha += comma + float_text(f.alpha);
      beta += comma + float_text(f.beta);
    }
    return fmt::format("{{{}, {}, {}, {}, {}, 0.0f, {{{}}}, {{{}}}, {{{}}}}}",
                       gates_ == 4   ? "OPTC_LSTM"
                       : gates_ == 3 ? "OPTC_GRU"
                                     : "OPTC_RNN",
                       input_, hidden_, cell.linear_before_reset, cell.input_forget, kinds, alpha, beta);
  }

  const Program &program_;
  const Kernel &kernel_;
  const LibraryCall &call_;
  NameScope names_{NameScope::Use::kKernel};
  std::vector<BufferId> buffers_;
  std::vector<bool> written_;
  std::vector<std::string> buffer_names_;
  std::vector<std::pair<const DimSymbol *, std::string>> symbols_;
  std::string out_, prologue_;
  bool integers_ = false;
  int64_t gates_ = 4, input_ = 0, hidden_ = 0, directions_ = 1;
};

}  // namespace

KernelText print_recurrent(const Program &program, const Kernel &kernel) {
  return RecurrentPrinter(program, kernel).print();
}

}  // namespace optc
