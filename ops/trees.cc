// ai.onnx.ml: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor. The three forms become one table of nodes
// and leaves, which the library function walks (runtime/cpu/lib_ml.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "ops/build.h"
#include "ops/ml_util.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

struct Trees {
  std::vector<int32_t> branches;  // 4 a branch: OptcLibBranch of runtime/cpu/lib_ml.h
  int64_t features = 0;           // as many must the input have
  bool plain = true;              // all are <=, and NaN goes to false
  std::vector<double> thresholds, members, leaf_weight;
  std::vector<int64_t> member_first, leaf_first, leaf_target, roots;
  int64_t targets = 1;
  int64_t aggregate = 1, post = 0;
  int64_t how = 0;  // of optc_lib_class_of (runtime/cpu/lib_ml.h)
  float threshold = 0;
  std::vector<float> base_values;

  // A child is a branch, or ~ of a leaf. False: the feature is none.
  bool add(int64_t feature, int64_t mode, int64_t yes, int64_t no, bool nan_is_yes) {
    if (feature < 0 || feature >= INT32_MAX) return false;
    features = std::max(features, feature + 1);
    plain = plain && mode == 0 && !nan_is_yes;
    for (const int64_t part : {feature, mode + (nan_is_yes ? 8 : 0), yes, no})
      branches.push_back(static_cast<int32_t>(part));
    return true;
  }
};
constexpr size_t kMostNodes = INT32_MAX;  // and leaves

std::vector<int64_t> ints(const Node &node, std::string_view name) {
  const auto *list = node.ints(name);
  if (list) return *list;
  if (const Attribute *a = node.attribute(name))
    if (const Constant *constant = std::get_if<Constant>(a)) return *constant_ints(constant);
  return {};
}
// A float list or (with the suffix, or by that name itself) a tensor.
std::vector<double> reals(const Node &node, const std::string &name) {
  std::vector<double> values;
  for (const std::string &spelling : {name + "_as_tensor", name}) {
    const Attribute *a = node.attribute(spelling);
    if (!a) continue;
    if (const Constant *constant = std::get_if<Constant>(a)) {
      for (int64_t i = 0; i < constant->count(); ++i) values.push_back(constant->as_double(i));
      return values;
    }
    if (const auto *list = std::get_if<std::vector<float>>(a)) return std::vector<double>(list->begin(), list->end());
  }
  return values;
}
// TreeEnsemble of ai.onnx.ml 5: nodes and leaves are tables already.
Result<Trees> read_version_5(const Node &node, std::string &error) {
  const auto fail = [&](const char *text) {
    error = text;
    return Failure{ErrorKind::kInvalid};
  };
  Trees trees;
  const auto features = ints(node, "nodes_featureids"), yes = ints(node, "nodes_truenodeids"),
             no = ints(node, "nodes_falsenodeids"), yes_leaf = ints(node, "nodes_trueleafs"),
             no_leaf = ints(node, "nodes_falseleafs"), modes = ints(node, "nodes_modes"),
             missing = ints(node, "nodes_missing_value_tracks_true");
  const size_t n = features.size();
  trees.thresholds = reals(node, "nodes_splits");
  const std::vector<double> members = reals(node, "membership_values");
  if (yes.size() != n || no.size() != n || yes_leaf.size() != n || no_leaf.size() != n || modes.size() != n ||
      trees.thresholds.size() != n)
    return fail("the lists of nodes differ in length");
  if (n > kMostNodes) return fail("there are too many nodes");
  trees.leaf_target = ints(node, "leaf_targetids");
  trees.leaf_weight = reals(node, "leaf_weights");
  const size_t leaves = trees.leaf_target.size();
  if (trees.leaf_weight.size() != leaves || leaves > kMostNodes) return fail("the lists of leaves differ in length");
  for (size_t i = 0; i <= leaves; ++i) trees.leaf_first.push_back(static_cast<int64_t>(i));
  std::vector<std::vector<double>> sets(n);
  // Sets of members follow one another in the order in which a walk (true branch first) meets their nodes; each ends
  // with NaN.
  size_t next = 0;
  std::set<int64_t> walked;
  std::vector<int64_t> stack;
  const auto roots = ints(node, "tree_roots");
  for (int64_t root : roots) {
    if (root < 0 || root >= static_cast<int64_t>(n)) return fail("a tree root is out of range");
    stack.push_back(root);
    while (!stack.empty()) {
      const int64_t at = stack.back();
      const size_t k = static_cast<size_t>(at);
      stack.pop_back();
      if (!walked.insert(at).second) return fail("the trees share a node or have a cycle");
      if (modes[k] == 6) {
        while (next < members.size() && !std::isnan(members[next])) sets[k].push_back(members[next++]);
        ++next;
      }
      const auto check = [&](int64_t child, bool leaf) {
        return child >= 0 && child < static_cast<int64_t>(leaf ? leaves : n);
      };
      if (!check(yes[k], yes_leaf[k] != 0) || !check(no[k], no_leaf[k] != 0)) return fail("a child is out of range");
      if (!no_leaf[k]) stack.push_back(no[k]);
      if (!yes_leaf[k]) stack.push_back(yes[k]);
    }
    const size_t r = static_cast<size_t>(root);
    trees.roots.push_back(yes_leaf[r] && no_leaf[r] && yes[r] == no[r] ? ~yes[r] : root);
  }
  for (size_t k = 0; k < n; ++k) {
    trees.member_first.push_back(static_cast<int64_t>(trees.members.size()));
    trees.members.insert(trees.members.end(), sets[k].begin(), sets[k].end());
    const bool read = walked.count(static_cast<int64_t>(k));
    if (!trees.add(read ? features[k] : 0, read ? modes[k] : 0, yes_leaf[k] ? ~yes[k] : yes[k],
                   no_leaf[k] ? ~no[k] : no[k], k < missing.size() && missing[k] != 0))
      return fail("a node reads a feature that there is not");
  }
  trees.member_first.push_back(static_cast<int64_t>(trees.members.size()));
  trees.targets = node.int_or("n_targets", 1);
  trees.aggregate = node.int_or("aggregate_function", 1);
  trees.post = node.int_or("post_transform", 0);
  if (trees.targets < 1 || trees.aggregate < 0 || trees.aggregate > 3 || trees.post < 0 || trees.post > 4)
    return fail("n_targets, aggregate_function or post_transform has a value that is not known");
  for (int64_t mode : modes)
    if (mode < 0 || mode > 6) return fail("a node has a mode that is not known");
  for (int64_t t : trees.leaf_target)
    if (t < 0 || t >= trees.targets) return fail("a leaf's target is out of range");
  return trees;
}

Result<Trees> read_old(const Node &node, bool classifier, std::string &error) {
  const auto fail = [&](const char *text) {
    error = text;
    return Failure{ErrorKind::kInvalid};
  };
  Trees trees;
  const auto tree_ids = ints(node, "nodes_treeids"), node_ids = ints(node, "nodes_nodeids"),
             features = ints(node, "nodes_featureids"), yes = ints(node, "nodes_truenodeids"),
             no = ints(node, "nodes_falsenodeids"), missing = ints(node, "nodes_missing_value_tracks_true");
  const auto *modes = strings_of(node, "nodes_modes");
  const std::vector<double> values = reals(node, "nodes_values");
  const std::string prefix = classifier ? "class_" : "target_";
  const auto leaf_trees = ints(node, prefix + "treeids"), leaf_nodes = ints(node, prefix + "nodeids"),
             leaf_ids = ints(node, prefix + "ids");
  const std::vector<double> weights = reals(node, prefix + "weights");
  const size_t n = tree_ids.size();
  if (!modes || modes->size() != n || node_ids.size() != n || features.size() != n || yes.size() != n ||
      no.size() != n || values.size() != n)
    return fail("the lists of nodes differ in length");
  if (n > kMostNodes) return fail("there are too many nodes");
  if (leaf_trees.size() != leaf_ids.size() || leaf_nodes.size() != leaf_ids.size() || weights.size() != leaf_ids.size())
    return fail("the lists of leaves differ in length");
  const std::map<std::string, int64_t> kModes = {{"BRANCH_LEQ", 0}, {"BRANCH_LT", 1}, {"BRANCH_GTE", 2},
                                                 {"BRANCH_GT", 3},  {"BRANCH_EQ", 4}, {"BRANCH_NEQ", 5},
                                                 {"LEAF", 9}};
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> leaf_entries;
  for (size_t i = 0; i < leaf_ids.size(); ++i) leaf_entries[{leaf_trees[i], leaf_nodes[i]}].push_back(i);
  // Numbers: branches are nodes in order, leaves ~0, ~1, ...
  std::map<std::pair<int64_t, int64_t>, int64_t> number;
  int64_t branches = 0, leaves = 0;
  // Of an only target a leaf has one weight. Converters repeat it (skl2onnx's decision paths: once a class), and
  // runtimes take the first.
  const bool once = !classifier && node.int_or("n_targets", 1) == 1;
  trees.leaf_first.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    if (!kModes.count((*modes)[i])) return fail("a node has a mode that is not known");
    const std::pair<int64_t, int64_t> key = {tree_ids[i], node_ids[i]};
    if (number.count(key)) return fail("a tree has two nodes of one id");
    if ((*modes)[i] == "LEAF") {
      number[key] = ~leaves++;
      for (size_t e : leaf_entries[key]) {
        trees.leaf_target.push_back(leaf_ids[e]);
        trees.leaf_weight.push_back(weights[e]);
        if (once) break;
      }
      trees.leaf_first.push_back(static_cast<int64_t>(trees.leaf_target.size()));
    } else {
      number[key] = branches++;
    }
  }
  std::set<int64_t> seen_trees;
  std::vector<std::pair<int64_t, int64_t>> root_keys;
  std::set<std::pair<int64_t, int64_t>> has_parent;
  for (size_t i = 0; i < n; ++i) {
    if (seen_trees.insert(tree_ids[i]).second) {
      root_keys.push_back({tree_ids[i], node_ids[i]});
      trees.roots.push_back(number[root_keys.back()]);
    }
    if ((*modes)[i] == "LEAF") continue;
    int64_t children[2];
    for (int b = 0; b < 2; ++b) {
      const std::pair<int64_t, int64_t> key = {tree_ids[i], b == 0 ? yes[i] : no[i]};
      auto it = number.find(key);
      if (it == number.end()) return fail("a child is missing");
      if (it->second >= 0 && !has_parent.insert(key).second) return fail("a node has two parents");
      children[b] = it->second;
    }
    if (!trees.add(features[i], kModes.at((*modes)[i]), children[0], children[1],
                   i < missing.size() && missing[i] != 0))
      return fail("a node reads a feature that there is not");
    trees.thresholds.push_back(values[i]);
    trees.member_first.push_back(0);
  }
  trees.member_first.push_back(0);
  for (const auto &key : root_keys)  // together with single parents: no cycle can be reached
    if (has_parent.count(key)) return fail("the root of a tree is some node's child");
  for (double v : reals(node, "base_values")) trees.base_values.push_back(static_cast<float>(v));
  trees.post = post_transform_of(node);
  if (trees.post < 0) return fail("post_transform is not known");
  if (classifier) {
    trees.targets = class_labels(node, "classlabels_int64s").count();
    if (trees.targets == 0) return fail("the classes have no labels");
    std::set<int64_t> ids(leaf_ids.begin(), leaf_ids.end());
    if (trees.targets == 2 && ids.size() == 1) {  // one score decides between two classes
      bool positive = true;
      for (double w : weights) positive = positive && w >= 0;
      trees.how = positive ? 1 : 2;
      trees.threshold = positive ? 0.5f : 0;
      for (int64_t &t : trees.leaf_target) t = 0;
      trees.targets = 1;
    }
  } else {
    trees.targets = node.int_or("n_targets", 1);
    if (trees.targets < 1) return fail("n_targets must be positive");
    const std::string_view how = node.string_or("aggregate_function", "SUM");
    trees.aggregate = how == "AVERAGE" ? 0 : how == "MIN" ? 2 : how == "MAX" ? 3 : 1;
  }
  for (int64_t t : trees.leaf_target)
    if (t < 0 || t >= trees.targets) return fail("a leaf's target is out of range");
  if (const size_t base = trees.base_values.size(); base > 1 && static_cast<int64_t>(base) != trees.targets)
    return fail("base_values has neither one entry nor one a target");
  return trees;
}

Result<Trees> read_trees(const Node &node, std::string &error) {
  if (node.op == "ai.onnx.ml.TreeEnsemble") return read_version_5(node, error);
  return read_old(node, node.op == "ai.onnx.ml.TreeEnsembleClassifier", error);
}

Status infer_trees(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 2) return c.invalid("the input must have rank 2");
  std::string error;
  auto trees = read_trees(c.node(), error);
  if (!trees) return c.invalid(error);
  if (c.node().op == "ai.onnx.ml.TreeEnsemble") {
    c.set_tensor(0, c.element(0), {c.shape(0)[0], trees->targets});
  } else if (c.node().op == "ai.onnx.ml.TreeEnsembleRegressor") {
    c.set_tensor(0, ElementType::kFloat32, {c.shape(0)[0], trees->targets});
  } else {
    c.set_tensor(0, class_labels(c.node(), "classlabels_int64s").element(), {c.shape(0)[0]});
    c.set_tensor(1, ElementType::kFloat32, {c.shape(0)[0], trees->how ? 2 : trees->targets});
  }
  return {};
}

template <typename T>
Constant constant_of(ElementType type, const std::vector<T> &values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return Constant::owned(type, {static_cast<int64_t>(values.size())}, std::move(bytes));
}

Status build_trees(BuildContext &c) {
  std::string error;
  auto trees = read_trees(c.node(), error);
  if (!trees) return c.invalid(error);
  const auto integers = [&](const char *name, const std::vector<int64_t> &values) {
    return c.constant_buffer(name, Constant::int64s(values));
  };
  const auto doubles = [&](const char *name, const std::vector<double> &values) {
    return c.constant_buffer(name, constant_of(ElementType::kFloat64, values));
  };
  const std::vector<BufferId> inputs = {
      c.input(0),
      c.constant_buffer("branches", constant_of(ElementType::kInt32, trees->branches)),
      doubles("thresholds", trees->thresholds),
      integers("member_first", trees->member_first),
      doubles("members", trees->members),
      integers("leaf_first", trees->leaf_first),
      integers("leaf_target", trees->leaf_target),
      doubles("leaf_weight", trees->leaf_weight),
      integers("roots", trees->roots)};
  std::vector<std::pair<std::string, Attribute>> attributes = {
      {"targets", trees->targets},     {"aggregate", trees->aggregate},
      {"post", trees->post},           {"how", trees->how},
      {"threshold", trees->threshold}, {"features", trees->features},
      {"plain", int64_t{trees->plain}}};
  if (!trees->base_values.empty()) attributes.push_back({"base_values", trees->base_values});
  if (c.node().op != "ai.onnx.ml.TreeEnsembleClassifier") {
    c.library("tree_ensemble", inputs, {c.output(0)}, attributes);
    return {};
  }
  const Dim rows = c.shape(0)[0];
  BufferId scores = c.has_output(1) ? c.output(1) : BufferId();
  BufferId winner = c.temporary("class", ElementType::kInt64, {rows});
  c.library("tree_ensemble", inputs, {scores, winner}, attributes);
  return build_labels(c, winner, rows, class_labels(c.node(), "classlabels_int64s"));
}

const OpDef kOps[] = {
    {"ai.onnx.ml.TreeEnsemble", OpForm::kLibrary, 5, infer_trees, build_trees},
    {"ai.onnx.ml.TreeEnsembleClassifier", OpForm::kLibrary, 5, infer_trees, build_trees},
    {"ai.onnx.ml.TreeEnsembleRegressor", OpForm::kLibrary, 5, infer_trees, build_trees},
};

}  // namespace

std::span<const OpDef> trees_ops() { return kOps; }

}  // namespace optc
