#include "convert/reduce.h"

#include <onnx/checker.h>

#include <algorithm>
#include <map>
#include <set>

#include "convert/internal_reduce.h"
#include "support/staging.h"

namespace optc {
namespace {

using Part = std::vector<size_t>;  // nodes of the main graph or of a body, in order

Part all_of(size_t count) {
  Part all(count);
  for (size_t i = 0; i < count; ++i) all[i] = i;
  return all;
}

template <typename List, typename Wanted>
void keep_if(List &list, const Wanted &wanted) {
  List rest;
  for (auto &item : list)
    if (wanted(item)) *rest.Add() = std::move(item);
  list.Swap(&rest);
}

std::vector<std::pair<std::string, int64_t>> by_count(const std::map<std::string, int64_t> &counts) {
  std::vector<std::pair<std::string, int64_t>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(), [](const auto &x, const auto &y) { return x.second > y.second; });
  return list;
}

class Reduction {
 public:
  Reduction(const ReduceOptions &options, const ReduceCheck &check, const ReduceProgress &progress, ReduceFacts &facts,
            Diagnostics &diagnostics)
      : options_(options), check_(check), progress_(progress), facts_(facts), diagnostics_(diagnostics) {}

  Status run() {
    OPTC_ASSIGN(whole_, read_model_file(options_.input, diagnostics_));
    if (whole_.proto.training_info_size() > 0)
      return diagnostics_.error(ErrorKind::kUnsupported, "a model with training_info cannot be reduced");
    OPTC_TRY(check_not_read(whole_, options_.output, options_.force, diagnostics_));
    NameSet ambiguous;
    types_ = infer_types(whole_.proto, &ambiguous);
    add_types_of_file(options_.input, ambiguous, types_);
    index();
    for (const auto &info : whole_.proto.graph().input()) first_inputs_.insert(info.name());
    for (const auto &node : whole_.proto.graph().node()) ++first_operators_[node.op_type()];
    facts_.nodes = static_cast<int64_t>(reads_.size());
    facts_.body_nodes = count_nodes(whole_.proto) - facts_.nodes;
    facts_.tensors = whole_.proto.graph().initializer_size();
    OPTC_TRY(ask_of_whole(all_of(reads_.size())));
    OPTC_TRY(minimize_graph());
    for (bool lifted = true; lifted && !facts_.stopped;) {
      OPTC_ASSIGN(lifted, lift_a_body());
      if (lifted) OPTC_TRY(minimize_graph());
    }
    const size_t bodies = count_bodies(whole_);
    for (size_t body = bodies; body-- > 0 && !facts_.stopped;) OPTC_TRY(minimize_body(body));  // the inner ones first
    return write();
  }

 private:
  // The model as it is from here on.
  void become(ModelFile model) {
    whole_ = std::move(model);
    known_.clear();
    index();
  }

  // To the least part of the main graph.
  Status minimize_graph() {
    OPTC_ASSIGN(const Part least, minimize(all_of(reads_.size()), [&](const Part &part) { return shows(part); }));
    ModelFile model;
    if (!cut(least, model)) return diagnostics_.error(ErrorKind::kInternal, "a part that was written is none any more");
    become(std::move(model));
    return {};
  }

  // Whether the check says of another model what it said of the first; it is the model then.
  Result<bool> becomes_if_it_shows(ModelFile model) {
    ModelFile before = whole_;
    become(std::move(model));
    OPTC_ASSIGN(const bool same, shows(all_of(reads_.size())));
    if (same) {
      ModelFile pruned;  // of weights and inputs that nothing reads any more
      if (cut(all_of(reads_.size()), pruned)) become(std::move(pruned));
    } else {
      become(std::move(before));
    }
    return same;
  }

  // A body in the place of the model that holds it.
  Result<bool> lift_a_body() {
    const size_t count = count_bodies(whole_);
    for (size_t body = 0; body < count; ++body) {
      if (facts_.runs >= options_.max_runs) {
        facts_.stopped = true;
        return false;
      }
      ModelFile alone;
      if (!lift_body(whole_, body, types_, alone)) continue;
      OPTC_ASSIGN(const bool shown, becomes_if_it_shows(std::move(alone)));
      if (shown) return true;
    }
    return false;
  }

  // To the least part of a body, in the model that holds it.
  Status minimize_body(size_t body) {
    const ModelFile base = whole_;
    std::map<Part, bool> known;
    const auto shows_cut = [&](const Part &part) -> Result<bool> {
      if (const auto it = known.find(part); it != known.end()) return it->second;
      ModelFile smaller;
      if (!cut_body(base, body, part, types_, smaller)) return known[part] = false;
      OPTC_ASSIGN(const bool shown, becomes_if_it_shows(std::move(smaller)));
      return known[part] = shown;
    };
    Part all = all_of(count_body_nodes(base, body));
    known[all] = true;
    OPTC_ASSIGN(const Part least, minimize(std::move(all), shows_cut));
    return {};
  }

  // What each node reads (captures of its bodies too) and makes.
  void index() {
    given_.clear(), declared_.clear();
    outputs_.clear(), constants_.clear(), all_reads_.clear();
    reads_.clear();
    const onnx::GraphProto &graph = whole_.proto.graph();
    for (const auto &info : graph.input()) given_[info.name()] = &info;
    for (const auto &info : graph.output()) {
      outputs_.insert(info.name());
      declared_[info.name()] = &info;
    }
    for (const auto &tensor : graph.initializer()) constants_.insert(tensor.name());
    for (const auto &sparse : graph.sparse_initializer()) constants_.insert(sparse.values().name());
    for (const auto &node : graph.node()) {
      std::set<std::string> reads(node.input().begin(), node.input().end());
      for (const std::string &outer : captures(node)) reads.insert(outer);
      reads.erase("");
      reads_.emplace_back(reads.begin(), reads.end());
      all_reads_.insert(reads.begin(), reads.end());
    }
  }

  bool info_of(const std::string &name, onnx::ValueInfoProto &info) const {
    if (const auto it = given_.find(name); it != given_.end()) info = *it->second;
    if (const auto it = declared_.find(name); it != declared_.end()) info = *it->second;
    if (const auto it = types_.find(name); it != types_.end() && !info.has_type()) *info.mutable_type() = it->second;
    info.set_name(name);
    return info.has_type();
  }

  // The part as a model of its own; false: the type of a value at its border is not known, or it gives nothing.
  bool cut(const Part &part, ModelFile &model) const {
    model = whole_;
    onnx::GraphProto &graph = *model.proto.mutable_graph();
    NameSet made, read;
    for (size_t i : part) {
      const onnx::NodeProto &node = whole_.proto.graph().node(static_cast<int>(i));
      made.insert(node.output().begin(), node.output().end());
      read.insert(reads_[i].begin(), reads_[i].end());
    }
    made.erase("");
    onnx::GraphProto border;
    NameSet shown;  // inputs and outputs
    for (const auto &info : whole_.proto.graph().input())
      if (read.count(info.name()) && shown.insert(info.name()).second) *border.add_input() = info;
    for (size_t i : part)
      for (const std::string &name : reads_[i]) {
        if (made.count(name) || constants_.count(name) || !shown.insert(name).second) continue;
        if (!info_of(name, *border.add_input())) return false;
      }
    for (const auto &info : whole_.proto.graph().output())
      if (made.count(info.name()) && shown.insert(info.name()).second) *border.add_output() = info;
    for (size_t i : part) {
      const onnx::NodeProto &node = whole_.proto.graph().node(static_cast<int>(i));
      for (const std::string &name : node.output()) {
        // What something read that is gone.
        if (name.empty() || read.count(name) || !all_reads_.count(name) || !shown.insert(name).second) continue;
        if (!info_of(name, *border.add_output())) return false;
      }
    }
    if (border.output_size() == 0) return false;
    std::vector<bool> kept(reads_.size(), false);
    for (size_t i : part) kept[i] = true;
    size_t at = 0;
    keep_if(*graph.mutable_node(), [&](const auto &) { return kept[at++]; });
    keep_if(*graph.mutable_initializer(), [&](const auto &t) { return read.count(t.name()) > 0; });
    keep_if(*graph.mutable_sparse_initializer(), [&](const auto &s) { return read.count(s.values().name()) > 0; });
    keep_if(*graph.mutable_value_info(),
            [&](const auto &info) { return made.count(info.name()) && !shown.count(info.name()); });
    keep_if(*graph.mutable_quantization_annotation(),
            [&](const auto &note) { return made.count(note.tensor_name()) || read.count(note.tensor_name()); });
    graph.mutable_input()->Swap(border.mutable_input());
    graph.mutable_output()->Swap(border.mutable_output());
    return true;
  }

  static bool is_valid(const std::string &path) {
    try {
      onnx::checker::check_model(path);
      return true;
    } catch (const std::exception &) {
      return false;
    }
  }

  std::string part_path() const { return scratch_.path() + "/part.onnx"; }

  // Writes the part as a model of its own, in ONNX's binary form; false: it is none.
  Result<bool> write_part(const Part &part) {
    ModelFile model;
    if (!cut(part, model)) return false;
    ConvertOptions writing;
    writing.output = part_path();
    writing.force = true;
    ConvertFacts written;
    OPTC_TRY(write_model_file(model, writing, written, diagnostics_));
    return true;
  }

  // What the check says of all nodes, written as the parts are: the model's own form and place are no part of the
  // question.
  Status ask_of_whole(const Part &all) {
    OPTC_ASSIGN(const bool is_model, write_part(all));
    if (!is_model) return diagnostics_.error(ErrorKind::kUnsupported, "the model gives nothing that a node computes");
    facts_.was_valid = is_valid(part_path());
    OPTC_ASSIGN(facts_.status, check_(part_path()));
    OPTC_ASSIGN(const int64_t again, check_(part_path()));
    facts_.runs = 2;
    known_[all] = true;
    if (again == facts_.status) return {};
    return diagnostics_.error(ErrorKind::kUsage,
                              "the check ends with " + std::to_string(facts_.status) + " and then with " +
                                  std::to_string(again) + " for the same model",
                              {}, "a check that is not deterministic cannot be reduced by");
  }

  // Whether the check says of the part what it says of the model. Nothing is asked twice.
  Result<bool> shows(const Part &part) {
    if (const auto it = known_.find(part); it != known_.end()) return it->second;
    bool &known = known_[part];
    known = false;
    OPTC_ASSIGN(const bool is_model, write_part(part));
    if (!is_model || (facts_.was_valid && !is_valid(part_path()))) {
      ++facts_.refused;
      return false;
    }
    ++facts_.runs;
    OPTC_ASSIGN(const int64_t status, check_(part_path()));
    known = status == facts_.status;
    if (known) progress_(static_cast<int64_t>(part.size()), facts_.runs);
    return known;
  }

  // Delta debugging: each stretch alone, then all but each stretch, in ever shorter ones.
  Result<Part> minimize(Part part, const std::function<Result<bool>(const Part &)> &shows) {
    for (size_t stretches = 2; part.size() > 1;) {
      stretches = std::min(stretches, part.size());
      const auto bound = [&](size_t k) {
        return part.begin() + static_cast<std::ptrdiff_t>(part.size() * k / stretches);
      };
      bool smaller = false;
      for (const bool alone : {true, false}) {
        if (!alone && stretches == 2) continue;  // the other one alone: was asked
        for (size_t k = 0; k < stretches && !smaller; ++k) {
          if (facts_.runs >= options_.max_runs) {
            facts_.stopped = true;
            return part;
          }
          // From the end: what stands behind a fault seldom matters to it.
          const size_t at = stretches - 1 - k;
          Part tried(alone ? bound(at) : part.begin(), alone ? bound(at + 1) : bound(at));
          if (!alone) tried.insert(tried.end(), bound(at + 1), part.end());
          OPTC_ASSIGN(smaller, shows(tried));
          if (!smaller) continue;
          stretches = alone ? 2 : std::max<size_t>(stretches - 1, 2);
          part = std::move(tried);
        }
        if (smaller) break;
      }
      if (smaller) continue;
      if (stretches == part.size()) break;
      stretches *= 2;
    }
    return part;
  }

  Status write() {
    const onnx::GraphProto &graph = whole_.proto.graph();
    facts_.nodes_left = graph.node_size();
    facts_.body_nodes_left = count_nodes(whole_.proto) - facts_.nodes_left;
    facts_.inputs = graph.input_size();
    facts_.outputs = graph.output_size();
    facts_.tensors_left = graph.initializer_size();
    for (const auto &info : graph.input()) facts_.new_inputs += first_inputs_.count(info.name()) ? 0 : 1;
    std::map<std::string, int64_t> left, removed = first_operators_;
    for (const auto &node : graph.node()) {
      ++left[node.op_type()];
      const auto it = removed.find(node.op_type());  // none: it was in a body
      if (it != removed.end() && --it->second == 0) removed.erase(it);
    }
    facts_.left = by_count(left);
    facts_.removed = by_count(removed);
    ConvertOptions writing;
    writing.output = options_.output;
    writing.force = options_.force;
    ConvertFacts written;
    OPTC_TRY(write_model_file(whole_, writing, written, diagnostics_));
    facts_.files = written.files;
    return {};
  }

  const ReduceOptions &options_;
  const ReduceCheck &check_;
  const ReduceProgress &progress_;
  ReduceFacts &facts_;
  Diagnostics &diagnostics_;
  ModelFile whole_;  // what is reduced: the model, then its least part, then that with less in its bodies
  TypesByName types_;
  NameSet first_inputs_;
  std::map<std::string, int64_t> first_operators_;
  std::vector<std::vector<std::string>> reads_;  // by node
  NameSet all_reads_, outputs_, constants_;
  std::unordered_map<std::string, const onnx::ValueInfoProto *> given_, declared_;
  std::map<Part, bool> known_;
  ScratchFolder scratch_;
};

}  // namespace

Status reduce_model(const ReduceOptions &options, const ReduceCheck &check, const ReduceProgress &progress,
                    ReduceFacts &facts, Diagnostics &diagnostics) {
  try {
    return Reduction(options, check, progress, facts, diagnostics).run();
  } catch (const std::bad_alloc &) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model does not fit in memory");
  } catch (const std::exception &error) {
    return diagnostics.error(ErrorKind::kInternal, std::string("the reduction failed: ") + error.what());
  }
}

}  // namespace optc
