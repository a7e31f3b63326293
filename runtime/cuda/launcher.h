#pragma once
// The launches of a model's kernels: one by one, or a segment of them as a CUDA graph. A graph outlives the sizes that
// it was captured with: before it runs again, the nodes whose grid or arguments have changed since are set anew, and
// the others stay. So a cache that is one step longer with every run costs the few nodes that ask for its length.

#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/model.h"

namespace optc {
namespace cuda {

constexpr size_t kFaultWords = 4;  // of a launch: pointers that kernels get are 16-byte aligned

// What launches read: the sizes of a run and where its values lie.
struct Bindings {
  uint64_t version = 0;  // another one with each change
  std::vector<int64_t> symbols;
  std::vector<Address> address;  // by buffer
  std::vector<TensorMap> maps;
  Address workspace = 0, faults = 0;
};

// All functions need the context to be current. Where one does not return 0, failed() says what the code is about.
class Launcher {
 public:
  explicit Launcher(const ModelTable &model) : model_(model) {
    int most = 0;
    for (int i = 0; i < model.launch_count; ++i) most = std::max(most, model.launches[i].argument_count);
    list_.resize(static_cast<size_t>(most));
    graphs_.resize(static_cast<size_t>(model.segment_count));
  }

  // chained: kernels wait themselves for the one before (ImageTable), and the driver can be told so.
  Result load(const Driver *driver, Module module, bool chained) {
    d_ = driver;
    chained_ = chained;
    for (int i = 0; i < model_.launch_count; ++i) {
      const LaunchTable &l = model_.launches[i];
      failed_ = l.function;
      Function f = nullptr;
      if (const Result code = d_->module_function(&f, module, l.function)) return code;
      if (l.shared_bytes > 48 * 1024)
        if (const Result code = d_->function_attribute(f, kMaxDynamicSharedBytes, static_cast<int>(l.shared_bytes)))
          return code;
      functions_.push_back(f);
    }
    return 0;
  }
  void drop_graphs() {
    for (Captured &c : graphs_) drop(c);
  }
  const std::string &failed() const { return failed_; }

  // behind: the launch before it in the stream is a kernel of this model, for whose end the kernel itself waits: it may
  // start before that.
  Result launch(int i, const Bindings &bindings, Stream stream, bool *behind = nullptr) {
    const Ready ready = make_ready(i, bindings);
    return ready.empty ? 0 : launch_ready(i, ready, stream, behind);
  }
  Result launch_each(const SegmentTable &segment, const Bindings &bindings, Stream stream) {
    bool behind = false;
    for (int i = segment.first; i < segment.first + segment.count; ++i)
      if (const Result code = launch(i, bindings, stream, &behind)) return code;
    return 0;
  }

  // Segment s: as a graph from the second call on. Where a graph could not follow other bindings before, only when
  // those of the call before come again. What is captured goes through `own`, a stream in which nothing else is done.
  Result run(int s, const Bindings &bindings, Stream own, Stream stream) {
    Captured &c = graphs_[static_cast<size_t>(s)];
    const SegmentTable &segment = model_.segments[s];
    const bool first = c.version == 0, same = c.version == bindings.version;
    if (c.exec && !same && !follow(segment, bindings, c)) {
      drop(c);
      c.fixed = true;
    }
    c.version = bindings.version;
    if (!c.exec) {
      if (first || (c.fixed && !same)) return launch_each(segment, bindings, stream);
      if (const Result code = capture(segment, bindings, own, c)) return code;
    }
    failed_ = "launch";
    return d_->graph_launch(c.exec, stream);
  }

 private:
  union Argument {
    Address address;
    int32_t number;
  };
  struct Node {
    GraphNode node = nullptr;  // null: an empty tensor's launch, which makes no node
    unsigned grid[3] = {0, 0, 0};
    std::vector<char> arguments;  // their bytes
  };
  struct Captured {
    Graph graph = nullptr;  // to whose nodes one refers as long as exec lives
    GraphExec exec = nullptr;
    std::vector<Node> nodes;  // by launch of the segment; none: the driver does not say which they are
    uint64_t version = 0;     // of the bindings of the call before
    bool fixed = false;       // cannot follow other ones
  };
  struct Ready {
    unsigned grid[3];
    bool empty;
  };

  // The launch's grid, and its arguments into list_ (their addresses, as the driver takes them).
  Ready make_ready(int i, const Bindings &b) {
    const LaunchTable &l = model_.launches[i];
    Ready ready = {{0, 0, 0}, false};
    for (int a = 0; a < 3; ++a) {
      const int64_t v = l.grid[a](b.symbols.data());
      ready.empty = ready.empty || v <= 0;
      ready.grid[a] = static_cast<unsigned>(v);
    }
    if (ready.empty) return ready;
    values_.resize(list_.size());
    for (int k = 0; k < l.argument_count; ++k) {
      const ArgumentTable &a = l.arguments[k];
      Argument &value = values_[static_cast<size_t>(k)];
      void *&at = list_[static_cast<size_t>(k)];
      at = &value;
      switch (a.kind) {
        case ArgumentKind::kSymbol:
          value.number = static_cast<int32_t>(b.symbols[static_cast<size_t>(a.index)]);
          break;
        case ArgumentKind::kUnread:
          value.number = 0;
          break;
        case ArgumentKind::kTensorMap:
          at = const_cast<TensorMap *>(&b.maps[static_cast<size_t>(a.index)]);  // which the driver copies
          break;
        case ArgumentKind::kWorkspace:
          value.address = b.workspace;
          break;
        case ArgumentKind::kFault:
          value.address = b.faults + static_cast<Address>(i) * kFaultWords * sizeof(uint32_t);
          break;
        case ArgumentKind::kBuffer:
          value.address = b.address[static_cast<size_t>(a.index)];
          break;
      }
    }
    return ready;
  }
  // What make_ready has just made.
  Result launch_ready(int i, const Ready &ready, Stream stream, bool *behind) {
    const LaunchTable &l = model_.launches[i];
    failed_ = l.function;
    Result code = 0;
    if (behind && *behind && chained_) {
      LaunchAttribute early = {};
      early.id = kProgrammaticSerialization;
      early.value.allowed = 1;
      const LaunchConfig config = {
          {ready.grid[0], ready.grid[1], ready.grid[2]}, {l.threads, 1, 1}, l.shared_bytes, stream, &early, 1};
      code = d_->launch_with(&config, functions_[static_cast<size_t>(i)], list_.data(), nullptr);
    } else {
      code = d_->launch(functions_[static_cast<size_t>(i)], ready.grid[0], ready.grid[1], ready.grid[2], l.threads, 1,
                        1, l.shared_bytes, stream, list_.data(), nullptr);
    }
    if (behind) *behind = true;
    return code;
  }
  // The bytes of what make_ready put into list_.
  void copy_arguments(int i, std::vector<char> *bytes) const {
    const LaunchTable &l = model_.launches[i];
    bytes->clear();
    for (int k = 0; k < l.argument_count; ++k) {
      const ArgumentKind kind = l.arguments[k].kind;
      const bool number = kind == ArgumentKind::kSymbol || kind == ArgumentKind::kUnread;
      const size_t size = number                             ? sizeof(int32_t)
                          : kind == ArgumentKind::kTensorMap ? sizeof(TensorMap)
                                                             : sizeof(Address);
      const char *from = static_cast<const char *>(list_[static_cast<size_t>(k)]);
      bytes->insert(bytes->end(), from, from + size);
    }
  }

  Result capture(const SegmentTable &segment, const Bindings &bindings, Stream own, Captured &c) {
    failed_ = "capture";
    if (const Result code = d_->capture_begin(own, kCaptureRelaxed)) return code;
    c.nodes.resize(static_cast<size_t>(segment.count));
    bool behind = false, known = d_->capture_info != nullptr;
    Result launched = 0;
    for (int k = 0; k < segment.count && !launched; ++k) {
      Node &n = c.nodes[static_cast<size_t>(k)];
      const Ready ready = make_ready(segment.first + k, bindings);
      if (ready.empty) continue;
      std::copy(ready.grid, ready.grid + 3, n.grid);
      copy_arguments(segment.first + k, &n.arguments);
      launched = launch_ready(segment.first + k, ready, own, &behind);
      known = known && !launched && last_node(own, &n.node);
    }
    const std::string launch_failed = failed_;
    failed_ = "capture";
    const Result ended = d_->capture_end(own, &c.graph);
    if (launched) failed_ = launch_failed;
    const Result code = launched ? launched : ended;
    if (!known) c.nodes.clear();
    if (!code) failed_ = "graph";
    const Result made = code ? code : d_->graph_instantiate(&c.exec, c.graph, 0);
    if (made) {
      c.exec = nullptr;
      drop(c);
    }
    return made;
  }
  // The node of the launch that was captured last.
  bool last_node(Stream stream, GraphNode *node) const {
    int status = 0;
    unsigned long long id = 0;
    Graph graph = nullptr;
    const GraphNode *last = nullptr;
    size_t count = 0;
    if (d_->capture_info(stream, &status, &id, &graph, &last, &count) || count != 1) return false;
    *node = last[0];
    return true;
  }

  // Sets what has changed since. False where that cannot be: a launch became empty or ceases to be, which would be
  // another graph, or the driver refuses; the graph may then be half set.
  bool follow(const SegmentTable &segment, const Bindings &bindings, Captured &c) {
    if (c.nodes.empty()) return segment.count == 0;
    std::vector<char> arguments;
    for (int k = 0; k < segment.count; ++k) {
      const int i = segment.first + k;
      Node &n = c.nodes[static_cast<size_t>(k)];
      const Ready ready = make_ready(i, bindings);
      if (ready.empty != (n.node == nullptr)) return false;
      if (ready.empty) continue;
      copy_arguments(i, &arguments);
      if (std::equal(ready.grid, ready.grid + 3, n.grid) && arguments == n.arguments) continue;
      const LaunchTable &l = model_.launches[i];
      const KernelNode node = {functions_[static_cast<size_t>(i)],
                               {ready.grid[0], ready.grid[1], ready.grid[2]},
                               {l.threads, 1, 1},
                               l.shared_bytes,
                               list_.data(),
                               nullptr};
      if (d_->graph_set_kernel(c.exec, n.node, &node)) return false;
      std::copy(ready.grid, ready.grid + 3, n.grid);
      n.arguments.swap(arguments);
    }
    return true;
  }

  void drop(Captured &c) {
    if (c.exec) d_->graph_exec_destroy(c.exec);
    if (c.graph) d_->graph_destroy(c.graph);
    c.exec = nullptr;
    c.graph = nullptr;
    c.nodes.clear();
  }

  const ModelTable &model_;
  const Driver *d_ = nullptr;
  bool chained_ = false;
  std::vector<Function> functions_;  // by launch
  std::vector<Argument> values_;     // of the launch that is being made
  std::vector<void *> list_;         // to each of them; as many as the model's longest list
  std::vector<Captured> graphs_;     // by segment
  std::string failed_;
};

}  // namespace cuda
}  // namespace optc
