#pragma once
// Nodes that give what they are given: copies, x * 1, x + 0, a Reshape to the shape that is there, a Dropout in
// inference. Another optimizer takes them out, and what reads them reads the same as before.

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace optc {

// Of a graph as its file has it: where types are not declared, only what constants and attributes say by themselves
// counts. x + 0 is one of them although it makes 0 of -0.
class NeutralNodes {
 public:
  explicit NeutralNodes(const Graph &graph);
  // What a node does instead of anything: "multiplied by 1"; empty: it does something.
  const std::string &why(NodeId node) const { return list_[node.index].why; }
  // The operand that the first output of a neutral node equals.
  size_t operand(NodeId node) const { return list_[node.index].operand; }
  // The value behind neutral nodes; of an invalid id that.
  ValueId behind(ValueId value) const;
  // Whether there are other ones than copies (Identity).
  bool any() const { return any_; }

 private:
  struct Entry {
    std::string why;
    size_t operand = 0;
  };
  const Graph &graph_;
  std::vector<Entry> list_;  // by node
  bool any_ = false;
};

}  // namespace optc
