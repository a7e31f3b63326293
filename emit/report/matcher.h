#pragma once
// Which nodes of two graphs correspond: what the parts of matching share (match.cc, match_pairs.cc,
// match_neighbours.cc, match_regions.cc).

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emit/report/diff.h"
#include "emit/report/fingerprints.h"
#include "emit/report/neutral.h"

namespace optc {

class Sets {  // union-find
 public:
  explicit Sets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t find(size_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void join(size_t x, size_t y) {
    x = find(x), y = find(y);
    if (x != y) parent_[std::max(x, y)] = std::min(x, y);
  }

 private:
  std::vector<size_t> parent_;
};

// What neighbours of a pair must have in common to be one: operator, attributes and which operands are constants; the
// first two of these; the operator.
enum class Alike : uint8_t { kOperands, kAttributes, kOperator };
// What a fingerprint does not see: copies, or all neutral nodes.
enum class Through : uint8_t { kCopies, kNeutral };

// Matching of two graphs, from the surest evidence to the weakest. A pair is made once.
class Matcher {
 public:
  Matcher(const Graph &before, const Graph &after);
  // All that two files say.
  void two_files(const Provenance &noted);
  void match(NodeId x, NodeId y, const char *evidence);
  // The sets of nodes that were found; what one side alone has stands by itself, neutral nodes apart from others.
  GraphDiff groups();

 private:
  // One graph as it is compared with the other one.
  struct Side {
    const Graph &graph, &other;
    size_t offset, other_offset;
    const std::vector<uint64_t> &inputs, &other_inputs, &outputs, &other_outputs;
  };
  struct Border;

  bool done_a(NodeId n) const { return evidence_[n.index] != nullptr; }
  bool done_b(NodeId n) const { return evidence_[offset_ + n.index] != nullptr; }
  const NeutralNodes &neutral_of(const Graph &g) const { return &g == &b_ ? neutral_b_ : neutral_a_; }

  // match_pairs.cc
  void by_notes(const Provenance &noted);
  void by_keys(const std::vector<uint64_t> &of_a, const std::vector<uint64_t> &of_b, const char *evidence);
  void by_fingerprints(Contents contents, Through through = Through::kCopies);
  void in_order(const std::vector<uint64_t> &of_a, const std::vector<uint64_t> &of_b);
  bool names_agree() const;
  std::unordered_map<std::string, NodeId> producers_a() const;
  void by_names();
  void duplicates(const Graph &g, size_t offset, const std::vector<uint64_t> &inputs);

  // match_neighbours.cc
  void spread(Alike alike);
  static std::string key_of(const Graph &g, NodeId n, Alike alike);
  std::map<std::string, NodeId> open_readers(const Graph &g, ValueId value, size_t offset, Alike alike) const;

  // match_regions.cc
  void fused_by_names();
  void gather(const Graph &g, size_t offset, std::unordered_map<uint32_t, size_t> &ends);
  void by_regions();
  void part_of_a_change(const Side &side, const std::vector<bool> &open, Sets &local, const std::set<size_t> &joined);
  void survey(const Side &side, const std::vector<bool> &open, Sets &local, NodeId n, Border &border);
  std::vector<ValueId> counterpart_of_output(const Side &side, size_t index) const;
  std::vector<ValueId> counterpart_of_operand(const Side &side, const Use &use) const;
  NodeId changed_beside(const Side &side, const Border &border) const;
  bool differs(const Side &side, NodeId n) const;
  std::vector<bool> open(const Graph &g, size_t offset) const;
  static void regions(const Graph &g, const std::vector<bool> &open, Sets &local);
  std::vector<std::pair<std::string, size_t>> borders(const Graph &g, const std::vector<bool> &open, size_t offset);

  const Graph &a_, &b_;
  const NeutralNodes neutral_a_, neutral_b_;
  const size_t offset_;
  Sets sets_;                           // nodes of A, and from offset_ on those of B
  std::vector<const char *> evidence_;  // null: not matched yet
  std::vector<NodeId> partner_;         // of a node that is done, in the other graph (one of them)
  std::vector<uint64_t> inputs_a_, inputs_b_, outputs_a_, outputs_b_;
  std::vector<std::pair<NodeId, NodeId>> fused_;
};

}  // namespace optc
