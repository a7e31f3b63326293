// The ordered table of passes. A pass is a list of rules that run together, node by node, until none of them fires; the
// whole table is run again while something changed, because a fold can complete a pattern and a pattern can leave
// something to fold.
#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "ir/graph/verifier.h"
#include "ops/conditions.h"
#include "ops/registry.h"
#include "optimizer/optimize.h"
#include "optimizer/passes/passes.h"
#include "optimizer/rule.h"

namespace optc {
namespace {

struct PassRow {
  std::string_view name;
  std::span<const Rule> (*rules)();  // null: a pass of its own (passes.h)
  Status (*run)(RuleContext &context, bool &changed);
};

constexpr PassRow kPasses[] = {
    {"fold", fold_rules, nullptr},          // constants and shape arithmetic first: patterns want plain numbers
    {"types", nullptr, refresh_types},      // a folded shape makes the dims behind it known
    {"identity", identity_rules, nullptr},  // what does nothing hides patterns
    {"dead", nullptr, remove_dead_nodes},   // so that use counts are true
    {"cse", nullptr, share_equal_nodes},    // one mask, one transpose: attention patterns see the same value
    {"view", view_rules, nullptr},          // chains of views hide patterns too
    {"transpose", transpose_rules, nullptr},
    {"norm", norm_rules, nullptr},  // before activations: both start from products
    {"activation", activation_rules, nullptr},
    {"convolution", convolution_rules, nullptr},
    {"matmul", matmul_rules, nullptr},  // after convolution and norm, which look for Add and Mul
    {"recurrent", recurrent_rules, nullptr},
    {"attention", attention_rules, nullptr},  // last: needs transposes and scales in their settled form
};

bool disabled(const OptimizeOptions &options, std::string_view pass, std::string_view rule) {
  auto hits = [&](const std::string &name) {
    return name == pass || name == rule ||
           (rule.size() > name.size() && rule.substr(0, name.size()) == name && rule[name.size()] == '.');
  };
  if (!options.only.empty() && std::none_of(options.only.begin(), options.only.end(), hits)) return true;
  return std::any_of(options.disabled.begin(), options.disabled.end(), hits);
}

// A pass that is no list of rules records its rewrites as PASS.something: leaving out one of these leaves out the pass.
bool pass_disabled(const OptimizeOptions &options, std::string_view pass) {
  return disabled(options, pass, pass) ||
         std::any_of(options.disabled.begin(), options.disabled.end(), [&](const std::string &name) {
           return name.size() > pass.size() && name[pass.size()] == '.' && name.compare(0, pass.size(), pass) == 0;
         });
}

// A name that means nothing would leave out nothing, silently.
Status check_names(const OptimizeOptions &options, Diagnostics &diagnostics) {
  const std::vector<RuleInfo> rules = list_rules();
  for (const auto *list : {&options.disabled, &options.only})
    for (const std::string &name : *list) {
      const bool known =
          std::any_of(std::begin(kPasses), std::end(kPasses), [&](const PassRow &pass) { return pass.name == name; }) ||
          std::any_of(rules.begin(), rules.end(), [&](const RuleInfo &rule) {
            return rule.name == name || rule.name.compare(0, name.size() + 1, name + ".") == 0;
          });
      if (!known)
        return diagnostics.error(ErrorKind::kUsage, "no pass and no rule is named '" + name + "'", {},
                                 "`optc explain` lists the rules");
    }
  const std::vector<std::string> passes = list_passes();
  for (const std::string *name : {&options.start_from, &options.stop_after})
    if (!name->empty() && std::find(passes.begin(), passes.end(), *name) == passes.end())
      return diagnostics.error(ErrorKind::kUsage, "no pass is named '" + *name + "'", {},
                               "`optc explain` lists the rules by pass");
  return {};
}

bool anchors_on(const Rule &rule, std::string_view op) {
  if (rule.ops == "*") return true;
  for (size_t at = 0; (at = rule.ops.find(op, at)) != std::string_view::npos; at += op.size()) {
    const size_t end = at + op.size();
    if ((at == 0 || rule.ops[at - 1] == ' ') && (end == rule.ops.size() || rule.ops[end] == ' ')) return true;
  }
  return false;
}

Status run_rules(const PassRow &pass, RuleContext &context, bool &changed) {
  for (bool again = true; again;) {
    again = false;
    for (NodeId n : context.graph().all_nodes()) {
      for (const Rule &rule : pass.rules()) {
        if (!context.node(n).alive) break;
        if (!anchors_on(rule, context.node(n).op) || disabled(context.options(), pass.name, rule.name)) continue;
        if (!context.rewriter().allowed(rule.name)) return {};
        OPTC_ASSIGN(const bool fired, rule.apply(context, n));
        again |= fired;
      }
    }
    changed |= again;
  }
  return {};
}

// What the nodes of the Graph demand of sizes is written down before they are rewritten, whatever the rules are: of it
// stays, at the end, what no node left demands.
Status note_conditions(Graph &graph, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::vector<StatedCondition> stated, stated_conditions(graph, diagnostics));
  std::vector<Condition> conditions = graph.conditions();
  for (const StatedCondition &s : stated) conditions.push_back({s.constraint, graph.node(s.node).region});
  graph.set_conditions(std::move(conditions));
  return {};
}

Status keep_lost_conditions(Graph &graph, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::vector<StatedCondition> stated, stated_conditions(graph, diagnostics));
  std::unordered_map<uint32_t, ConditionSet> known;  // by region
  for (const StatedCondition &s : stated) known[graph.node(s.node).region.index].add(s.constraint);
  std::vector<Condition> lost;
  for (Condition c : graph.conditions()) {
    c.constraint.left = settle(c.constraint.left);
    c.constraint.right = settle(c.constraint.right);
    const bool holds = c.constraint.left == c.constraint.right || (c.constraint.or_one && c.constraint.right.is(1));
    if (!holds && !known[Graph::main().index].contains(c.constraint) && known[c.region.index].add(c.constraint))
      lost.push_back(std::move(c));
  }
  graph.set_conditions(std::move(lost));
  return {};
}

// A Squeeze that names no axes, of a dim that inference takes to be 2 or more (ops/shape.cc): what is compiled asks
// that of each run, a written model cannot. Null: none.
const Node *squeeze_by_sizes(const Graph &graph) {
  for (NodeId n = graph.region(Graph::main()).first; n.valid(); n = graph.node(n).next) {
    const Node &node = graph.node(n);
    if (node.op != "Squeeze" || node.inputs.size() > 1 || node.attribute("axes")) continue;
    const Type &type = graph.value(node.inputs[0]).type;
    for (const Dim d : type.has_shape() ? *type.shape : Shape()) {
      const DimSymbol *symbol = single_symbol(d);
      if (symbol && symbol->kind == SymbolKind::kModel && symbol->min == 2) return &node;
    }
  }
  return nullptr;
}

// One run of a pass. `changed` is set where it changed anything.
Status run_pass(const PassRow &pass, RuleContext &context, bool &changed) {
  const OptimizeOptions &options = context.options();
  Rewriter &rewriter = context.rewriter();
  rewriter.set_pass(pass.name);
  const size_t before = rewriter.records().size();
  const auto began = std::chrono::steady_clock::now();
  if (pass.rules)
    OPTC_TRY(run_rules(pass, context, changed));
  else if (!pass_disabled(options, pass.name))
    OPTC_TRY(pass.run(context, changed));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!options.after_pass) return {};
  return options.after_pass({pass.name, rewriter.records().size() - before, took.count(), context.graph()});
}

Status run_passes(Graph &graph, const OptimizeOptions &options, OptimizeReport &report, Rewriter &rewriter,
                  Diagnostics &diagnostics) {
  RuleContext context(rewriter, options, diagnostics);
  report.nodes_before = report.nodes_after = graph.live_node_count();
  if (const Node *squeeze = options.operators.has ? squeeze_by_sizes(graph) : nullptr) {
    report.left_as_it_is = "the sizes of a run decide the rank of Squeeze '" + squeeze->name + "', which names no axes";
    return {};
  }
  OPTC_TRY(note_conditions(graph, diagnostics));
  bool skipped = !options.start_from.empty(), stopped = false;
  for (bool changed = true; changed && !stopped;) {
    changed = false;
    for (const PassRow &pass : kPasses) {
      skipped = skipped && pass.name != options.start_from;
      if (skipped) continue;
      bool pass_changed = false;
      OPTC_TRY(run_pass(pass, context, pass_changed));
      if (pass_changed && options.verify_each) OPTC_TRY(verify(graph, diagnostics));
      changed |= pass_changed;
      stopped = pass.name == options.stop_after;
      if (stopped) break;
    }
    if (static_cast<int64_t>(rewriter.records().size()) >= options.max_rewrites) break;
  }
  return keep_lost_conditions(graph, diagnostics);
}

}  // namespace

Status optimize(Graph &graph, const OptimizeOptions &options, OptimizeReport &report, Diagnostics &diagnostics) {
  OPTC_TRY(check_names(options, diagnostics));
  OpInference inference;
  Rewriter rewriter(graph, inference, diagnostics);
  rewriter.set_gate([&](size_t count, std::string_view) { return static_cast<int64_t>(count) < options.max_rewrites; });
  const Status done = run_passes(graph, options, report, rewriter, diagnostics);
  report.nodes_after = graph.live_node_count();
  report.rewrites = rewriter.records();
  report.missed = rewriter.missed_rewrites();
  return done;
}

std::vector<std::string> list_passes() {
  std::vector<std::string> names;
  for (const PassRow &pass : kPasses) names.emplace_back(pass.name);
  return names;
}

std::vector<RuleInfo> list_rules() {
  std::vector<RuleInfo> list;
  for (const PassRow &pass : kPasses) {
    if (!pass.rules) continue;
    for (const Rule &rule : pass.rules())
      list.push_back({std::string(rule.name), std::string(pass.name), rule.numerics, std::string(rule.summary),
                      std::string(rule.precondition)});
  }
  list.push_back({"dead.node", "dead", NumericsClass::kExact, "a node whose results nobody reads -> nothing",
                  "the operator has no effect"});
  list.push_back({"cse.node", "cse", NumericsClass::kExact, "two nodes of one operator, operands and attributes -> one",
                  "the operator is pure"});
  list.push_back(
      {"cse.constant", "cse", NumericsClass::kExact, "two constants of one type and content -> one", "always"});
  return list;
}

}  // namespace optc
