#pragma once
// Rewriter: the only way to change a Graph after import. Each change states {pass, rule, removed, created, kind}; that
// record is what diff, --opt-report, bisection and kernel names are made of.
//
//   Rewriter::Change change = rewriter.begin("conv.bn", RewriteKind::kFuse, anchor_node);
//   ValueId w = change.constant("W_folded", folded);
//   NodeId conv = change.create("Conv", {x, w, b}, attributes);          // types come from the operator's inference
//   change.replace(bn_output, change.output(conv));                       // all uses; the new value takes over the old
//   name change.erase(bn); change.erase(old_conv); OPTC_TRY(change.commit());
//
// Created nodes inherit the union of the origins of the nodes that the change removed (or of the anchor when it removed
// none).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

enum class RewriteKind : uint8_t { kRemove, kFold, kFuse, kReplace, kExpand, kMove, kAnnotate };
// exact: the same bits; reassociating: the same value in exact arithmetic, other rounding; approximating: within a
// stated error.
enum class NumericsClass : uint8_t { kExact, kReassociating, kApproximating };
std::string_view to_string(RewriteKind kind);
std::string_view to_string(NumericsClass numerics);

struct NodeStamp {  // what a node was when it was removed or created
  NodeId id;
  std::string op, name;
  std::vector<uint32_t> origin;
};

struct RewriteRecord {
  std::string pass, rule;
  RewriteKind kind = RewriteKind::kReplace;
  NumericsClass numerics = NumericsClass::kExact;
  std::vector<NodeStamp> removed, created;
  std::string detail;  // optional: one short clause for the reader
};

// A rewrite that matched its pattern's head but not its precondition: shown by --opt-report as "not applied".
struct MissedRewrite {
  std::string pass, rule, node, reason;
};

// Infers the output types of a node from its inputs and sets them on the graph. Implemented by ops/.
class TypeInference {
 public:
  virtual ~TypeInference() = default;
  virtual Status infer(Graph &graph, NodeId node, Diagnostics &diagnostics) const = 0;
};

class Rewriter {
 public:
  Rewriter(Graph &graph, const TypeInference &inference, Diagnostics &diagnostics)
      : graph_(graph), inference_(inference), diagnostics_(diagnostics) {}

  class Change {
   public:
    Change(Change &&) = default;
    ValueId constant(std::string_view base_name, Constant value);
    // Inserts before the anchor (or before `before(...)`'s node). One output per entry of output_count.
    NodeId create(std::string op, std::vector<ValueId> inputs,
                  std::vector<std::pair<std::string, Attribute>> attributes = {}, size_t output_count = 1);
    ValueId output(NodeId node, size_t index = 0) const;
    void before(NodeId node) { before_ = node; }
    // Every use of `from` reads `to` instead. A graph output keeps its name: `to` takes the name of `from` when `from`
    // was one.
    void replace(ValueId from, ValueId to);
    void erase(NodeId node);  // checked at commit: outputs without uses
    void set_attribute(NodeId node, std::string_view name, Attribute value);
    void set_input(NodeId node, size_t index,
                   ValueId value);  // the node counts as changed: removed + created under one id
    void detail(std::string text);
    void numerics(NumericsClass numerics);
    Status commit();  // infers types of what was created, erases, writes the record (also where inference refuses)

   private:
    friend class Rewriter;
    Change(Rewriter *rewriter, std::string_view rule, RewriteKind kind, NodeId anchor);
    Rewriter *rewriter_;
    RewriteRecord record_;
    NodeId anchor_, before_;
    std::vector<NodeId> created_, erased_, touched_;
    std::vector<std::pair<ValueId, ValueId>> replaced_;
  };

  Change begin(std::string_view rule, RewriteKind kind, NodeId anchor);
  void missed(std::string_view rule, NodeId node, std::string reason);
  void set_pass(std::string_view pass) { pass_ = pass; }
  const Graph &graph() const { return graph_; }
  Graph &mutable_graph_for_construction() { return graph_; }  // ops' expansions that build regions
  const std::vector<RewriteRecord> &records() const { return records_; }
  const std::vector<MissedRewrite> &missed_rewrites() const { return missed_; }
  // Called before a change is made; returning false vetoes it (bisection: stop after N rewrites).
  void set_gate(std::function<bool(size_t index, std::string_view rule)> gate) { gate_ = std::move(gate); }
  bool allowed(std::string_view rule) const { return !gate_ || gate_(records_.size(), rule); }

 private:
  Graph &graph_;
  const TypeInference &inference_;
  Diagnostics &diagnostics_;
  std::string pass_;
  std::vector<RewriteRecord> records_;
  std::vector<MissedRewrite> missed_;
  std::function<bool(size_t, std::string_view)> gate_;
};

}  // namespace optc
