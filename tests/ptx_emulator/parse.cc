#include <cstdlib>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/ptx_emulator/program.h"

namespace optc::testing {

namespace {

std::string trim(const std::string &s) {
  size_t a = s.find_first_not_of(" \t"), b = s.find_last_not_of(" \t");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

std::vector<std::string> split(const std::string &s, char by) {
  std::vector<std::string> out;
  std::string part;
  int depth = 0;
  for (char c : s) {
    depth += c == '{' || c == '[' || c == '(';
    depth -= c == '}' || c == ']' || c == ')';
    if (c == by && depth == 0) {
      out.push_back(trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trim(part).empty()) out.push_back(trim(part));
  return out;
}

PtxType type_of(const std::string &name) {
  static const std::map<std::string, PtxType> kTypes = {
      {"pred", PtxType::kPred}, {"b8", PtxType::kB8},    {"b16", PtxType::kB16},   {"b32", PtxType::kB32},
      {"b64", PtxType::kB64},   {"u8", PtxType::kU8},    {"u16", PtxType::kU16},   {"u32", PtxType::kU32},
      {"u64", PtxType::kU64},   {"s8", PtxType::kS8},    {"s16", PtxType::kS16},   {"s32", PtxType::kS32},
      {"s64", PtxType::kS64},   {"f16", PtxType::kF16},  {"bf16", PtxType::kBF16}, {"f32", PtxType::kF32},
      {"f64", PtxType::kF64},   {"tf32", PtxType::kTF32}};
  auto it = kTypes.find(name);
  return it == kTypes.end() ? PtxType::kNone : it->second;
}

class Parser {
 public:
  explicit Parser(const std::string &text) : in_(text) {}

  std::vector<PtxFunction> run() {
    std::vector<PtxFunction> functions;
    std::string raw;
    while (std::getline(in_, raw)) {
      ++line_;
      if (size_t at = raw.find("//"); at != std::string::npos) raw.erase(at);
      std::string s = trim(raw);
      if (s.empty()) continue;
      if (size_t at = s.find(".entry "); at != std::string::npos) {
        function_ = PtxFunction();
        function_.name = trim(s.substr(at + 7, s.find('(') - at - 7));
        parameters_.clear();
        registers_.clear();
        labels_.clear();
        locals_.clear();
        jumps_.clear();
        inside_ = false;
      } else if (s.rfind(".param ", 0) == 0) {
        auto words = split(s, ' ');
        std::string name = words.back();
        if (name.back() == ',') name.pop_back();
        if (size_t at = name.find('['); at != std::string::npos) name.erase(at);  // by value
        parameters_.emplace(name, static_cast<int>(parameters_.size()));
      } else if (s == "{") {
        inside_ = true;
      } else if (s == "}") {
        for (auto &[at, label] : jumps_) {
          if (!labels_.count(label)) fail("no label " + label);
          function_.code[at].target = labels_[label];
        }
        function_.registers = static_cast<int>(registers_.size());
        functions.push_back(std::move(function_));
        inside_ = false;
      } else if (inside_) {
        body(s);
      }
    }
    return functions;
  }

 private:
  [[noreturn]] void fail(const std::string &what) {
    throw std::runtime_error("PTX line " + std::to_string(line_) + ": " + what);
  }

  void body(std::string s) {
    if (s.rfind("{ wgmma", 0) == 0) s = trim(s.substr(1));
    if (s.rfind("{ .reg", 0) == 0) {  // its block may end on the same line
      locals_.insert(split(s.substr(1, s.find(';') - 1), ' ').back());
      s = trim(s.substr(s.find(';') + 1));
    }
    if (s.empty() || s.rfind(".reg", 0) == 0) return;
    if (s.size() > 3 && s.compare(s.size() - 3, 3, "; }") == 0)
      s.resize(s.size() - 2);  // the end of a block with a register of its own
    if (s.rfind(".local", 0) == 0) {
      size_t a = s.find('['), b = s.find(']');
      function_.local_bytes = static_cast<unsigned>(std::atoi(s.substr(a + 1, b - a - 1).c_str()));
      return;
    }
    if (s.back() == ':') {
      labels_[s.substr(0, s.size() - 1)] = static_cast<int>(function_.code.size());
      return;
    }
    if (s[0] == '.') return;  // .pragma, .loc
    pending_ += s + " ";      // long instructions go over several lines
    if (s.back() != ';') return;
    const std::string whole = std::move(pending_);
    pending_.clear();
    for (const std::string &statement : split(whole, ';')) instruction(statement);
  }

  int reg(const std::string &name) {
    return registers_.emplace(name, static_cast<int>(registers_.size())).first->second;
  }

  PtxOperand operand(const std::string &s) {
    PtxOperand o;
    if (s[0] == '{') {
      o.kind = PtxOperand::Kind::kVector;
      for (const std::string &r : split(s.substr(1, s.size() - 2), ',')) o.list.push_back(r == "_" ? -1 : reg(r));
      return o;
    }
    if (s[0] == '[') {
      o.kind = PtxOperand::Kind::kAddress;
      std::string inner = s.substr(1, s.size() - 2), base = inner;
      if (size_t plus = inner.find('+'); plus != std::string::npos) {
        base = inner.substr(0, plus);
        o.bits = static_cast<uint64_t>(std::strtoll(inner.c_str() + plus + 1, nullptr, 0));
      }
      if (parameters_.count(base))
        o.bits += static_cast<uint64_t>(parameters_[base]) * 8;
      else if (base[0] == '%')
        o.reg = reg(base);
      return o;  // any other name is the block's shared memory, at 0
    }
    static const std::map<std::string, int> kSpecial = {
        {"%tid.x", 0},  {"%tid.y", 1},  {"%tid.z", 2},  {"%ctaid.x", 3},  {"%ctaid.y", 4},   {"%ctaid.z", 5},
        {"%ntid.x", 6}, {"%ntid.y", 7}, {"%ntid.z", 8}, {"%nctaid.x", 9}, {"%nctaid.y", 10}, {"%nctaid.z", 11}};
    if (auto it = kSpecial.find(s); it != kSpecial.end()) {
      o.kind = PtxOperand::Kind::kSpecial;
      o.bits = static_cast<uint64_t>(it->second);
      return o;
    }
    if (s[0] == '%' || locals_.count(s)) {
      o.kind = PtxOperand::Kind::kRegister;
      o.reg = reg(s);
      return o;
    }
    if (auto it = parameters_.find(s); it != parameters_.end()) {
      o.kind = PtxOperand::Kind::kParameter;
      o.bits = static_cast<uint64_t>(it->second);
      return o;
    }
    o.kind = PtxOperand::Kind::kImmediate;
    if (s.rfind("0f", 0) == 0 || s.rfind("0F", 0) == 0 || s.rfind("0d", 0) == 0 || s.rfind("0D", 0) == 0)
      o.bits = std::strtoull(s.c_str() + 2, nullptr, 16);
    else if (s[0] == '-' || (s[0] >= '0' && s[0] <= '9'))
      o.bits = s[0] == '-' ? static_cast<uint64_t>(std::strtoll(s.c_str(), nullptr, 0))
                           : std::strtoull(s.c_str(), nullptr, 0);
    else
      o.bits = 0;  // the address of the block's memory or of the local depot
    return o;
  }

  void instruction(const std::string &statement) {
    std::string s = statement;
    PtxInstruction i;
    i.line = line_;
    i.text = s;
    if (size_t colon = s.find(": "); colon != std::string::npos && s.find(' ') > colon) {  // a label in a block
      labels_[s.substr(0, colon)] = static_cast<int>(function_.code.size());
      s = trim(s.substr(colon + 1));
    }
    if (s[0] == '@') {
      size_t space = s.find_first_of(" \t");
      std::string p = s.substr(1, space - 1);
      if (p[0] == '!') {
        i.negated = true;
        p.erase(0, 1);
      }
      i.predicate = reg(p);
      s = trim(s.substr(space));
    }
    size_t space = s.find_first_of(" \t");
    std::string opcode = s.substr(0, space), rest = space == std::string::npos ? "" : trim(s.substr(space));
    std::vector<std::string> parts = split(opcode, '.');
    const std::string &base = parts[0];
    auto has = [&](const char *word) {
      for (const std::string &p : parts)
        if (p == word) return true;
      return false;
    };
    for (const std::string &p : parts)
      if (PtxType t = type_of(p); t != PtxType::kNone) {
        if (i.type == PtxType::kNone)
          i.type = t;
        else
          i.from = t;
      }
    if (base == "bra") {
      i.op = PtxOp::kBra;
      jumps_.emplace_back(function_.code.size(), rest);
      function_.code.push_back(i);
      return;
    }
    if (base == "cp" && has("tensor")) return tensor_copy(std::move(i), rest);
    for (const std::string &o : split(rest, ',')) {
      size_t bar = o.find('|');  // shfl's second result is a predicate, which we do not emit
      if (bar != std::string::npos) fail("two results: " + statement);
      i.operands.push_back(operand(o));
    }
    i.vector = has("v2") ? 2 : has("v4") ? 4 : 1;
    i.nan = has("NaN");
    i.saturate = has("sat");
    i.read_only = has("nc");
    const bool real = i.type == PtxType::kF32 || i.type == PtxType::kF64 || i.type == PtxType::kF16;
    if (base == "griddepcontrol") {
      i.op = has("wait") ? PtxOp::kGridWait : PtxOp::kGridEarly;
      function_.code.push_back(i);
      return;
    }
    if (base == "mbarrier" || base == "wgmma" || base == "setmaxnreg" || (base == "bar" && has("warp"))) {
      i.op = hopper(base, parts[1], has("expect_tx"));
      if (i.op == PtxOp::kWgmma) {  // m64nNk16
        if (parts.size() != 8 || parts[4].rfind("m64n", 0) != 0 || parts[4].find("k16") == std::string::npos ||
            parts[5] != "f32")
          fail("unknown instruction: " + statement);
        i.size = static_cast<unsigned>(std::atoi(parts[4].c_str() + 4));
        i.type = has("bf16") ? PtxType::kBF16 : PtxType::kF16;
      }
      function_.code.push_back(std::move(i));
      return;
    }
    static const std::map<std::string, PtxOp> kPlain = {
        {"mov", PtxOp::kMov},   {"add", PtxOp::kAdd},   {"sub", PtxOp::kSub},
        {"div", PtxOp::kDiv},   {"rem", PtxOp::kRem},   {"neg", PtxOp::kNeg},
        {"abs", PtxOp::kAbs},   {"min", PtxOp::kMin},   {"max", PtxOp::kMax},
        {"fma", PtxOp::kFma},   {"sqrt", PtxOp::kSqrt}, {"rcp", PtxOp::kRcp},
        {"ex2", PtxOp::kEx2},   {"and", PtxOp::kAnd},   {"or", PtxOp::kOr},
        {"xor", PtxOp::kXor},   {"not", PtxOp::kNot},   {"shl", PtxOp::kShl},
        {"shr", PtxOp::kShr},   {"bfe", PtxOp::kBfe},   {"bfi", PtxOp::kBfi},
        {"selp", PtxOp::kSelp}, {"cvta", PtxOp::kCvta}, {"ret", PtxOp::kRet},
        {"bar", PtxOp::kBar},   {"prmt", PtxOp::kPrmt}, {"copysign", PtxOp::kCopysign}};
    if (auto it = kPlain.find(base); it != kPlain.end()) {
      i.op = it->second;
      if (i.type == PtxType::kNone && has("f16x2")) fail("packed type: " + statement);
    } else if (base == "ld" || base == "st") {
      const bool load = base == "ld";
      if (load && has("param"))
        i.op = PtxOp::kLdParam;
      else if (has("global"))
        i.op = load ? PtxOp::kLdGlobal : PtxOp::kStGlobal;
      else if (has("shared"))
        i.op = load ? PtxOp::kLdShared : PtxOp::kStShared;
      else if (has("local"))
        i.op = load ? PtxOp::kLdLocal : PtxOp::kStLocal;
      else
        fail("address space: " + statement);
    } else if (base == "fence") {
      i.op = has("mbarrier_init") ? PtxOp::kBarrierFence : PtxOp::kFence;
    } else if (base == "atom") {
      i.op = PtxOp::kAtomAdd;
      if (!has("add") || !has("global") || i.type != PtxType::kU32) fail(statement);
    } else if (base == "mul") {
      i.op = real ? PtxOp::kMulFloat : has("wide") ? PtxOp::kMulWide : has("hi") ? PtxOp::kMulHi : PtxOp::kMulLo;
    } else if (base == "mad") {
      i.op = has("wide") ? PtxOp::kMadWide : PtxOp::kMadLo;
      if (has("hi")) fail(statement);
    } else if (base == "setp") {
      i.op = PtxOp::kSetp;
      i.compare = parts[1];
      if (parts.size() > 3) fail("combined comparison: " + statement);
    } else if (base == "cvt") {
      i.op = PtxOp::kCvt;
      for (const std::string &p : parts)
        if (p == "rni" || p == "rzi" || p == "rmi" || p == "rpi") i.rounding = p[1];
      if (has("bf16x2") || has("f16x2")) fail("packed conversion: " + statement);
    } else if (base == "shfl") {
      i.op = has("bfly") ? PtxOp::kShflBfly : PtxOp::kShflIdx;
      if (!has("bfly") && !has("idx")) fail(statement);
    } else if (base == "ldmatrix") {
      i.op = PtxOp::kLdMatrix;
      i.transposed = has("trans");
      if (!has("x4")) fail(statement);
    } else if (base == "mma") {
      i.op = PtxOp::kMma;
      i.type = has("bf16") ? PtxType::kBF16 : has("tf32") ? PtxType::kTF32 : PtxType::kF16;
      if (!has("m16n8k16") && !has("m16n8k8")) fail(statement);
    } else if (base == "cp") {
      i.op = has("commit_group") ? PtxOp::kCpCommit : has("wait_group") ? PtxOp::kCpWait : PtxOp::kCpAsync;
      if (i.op == PtxOp::kCpAsync) i.size = static_cast<unsigned>(i.operands[2].bits);
    } else {
      fail("unknown instruction: " + statement);
    }
    function_.code.push_back(std::move(i));
  }

  PtxOp hopper(const std::string &base, const std::string &what, bool expect) {
    if (base == "bar") return PtxOp::kWarpSync;
    if (base == "setmaxnreg") return PtxOp::kRegisters;
    if (base == "mbarrier") {
      if (what == "init") return PtxOp::kBarrierInit;
      if (what == "arrive") return expect ? PtxOp::kBarrierExpect : PtxOp::kBarrierArrive;
      if (what == "try_wait") return PtxOp::kBarrierWait;
    }
    if (base == "wgmma") {
      if (what == "mma_async") return PtxOp::kWgmma;
      if (what == "fence") return PtxOp::kWgmmaFence;
      if (what == "commit_group") return PtxOp::kWgmmaCommit;
      if (what == "wait_group") return PtxOp::kWgmmaWait;
    }
    fail("unknown instruction: " + base + "." + what);
  }

  // [to], [map, {coordinates}], [barrier]; im2col: and {offsets}
  void tensor_copy(PtxInstruction i, const std::string &rest) {
    const std::vector<std::string> given = split(rest, ',');
    const bool image = i.text.find(".4d.") != std::string::npos && i.text.find(".im2col.") != std::string::npos;
    if (given.size() != (image ? 4u : 3u)) fail("unknown instruction: " + i.text);
    const std::vector<std::string> source = split(given[1].substr(1, given[1].size() - 2), ',');
    if (source.size() != 2) fail("unknown instruction: " + i.text);
    i.op = PtxOp::kTensorCopy;
    for (const std::string &o : {given[0], source[0], source[1], given[2]}) i.operands.push_back(operand(o));
    if (image) i.operands.push_back(operand(given[3]));
    function_.code.push_back(std::move(i));
  }

  std::istringstream in_;
  int line_ = 0;
  bool inside_ = false;
  std::string pending_;
  PtxFunction function_;
  std::map<std::string, int> parameters_, registers_, labels_;
  std::set<std::string> locals_;  // registers of blocks
  std::vector<std::pair<size_t, std::string>> jumps_;
};

}  // namespace

unsigned bytes_of(PtxType type) {
  switch (type) {
    case PtxType::kB8:
    case PtxType::kU8:
    case PtxType::kS8:
      return 1;
    case PtxType::kB16:
    case PtxType::kU16:
    case PtxType::kS16:
    case PtxType::kF16:
    case PtxType::kBF16:
      return 2;
    case PtxType::kB64:
    case PtxType::kU64:
    case PtxType::kS64:
    case PtxType::kF64:
      return 8;
    default:
      return 4;
  }
}

std::vector<PtxFunction> parse_ptx(const std::string &text) { return Parser(text).run(); }

}  // namespace optc::testing
