// The launches of a model on a driver that writes down what is asked of it: which go one by one, which as a graph, and
// which nodes of the graph are set anew when sizes change.
#include "runtime/cuda/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace optc::cuda {
namespace {

// A driver of one process; what graphs hold is what runs when they are launched.
struct Launched {
  std::string function;
  unsigned grid = 0;
  int64_t argument = 0;
  bool operator==(const Launched &o) const {
    return function == o.function && grid == o.grid && argument == o.argument;
  }
};
using Recorded = std::vector<Launched>;
struct Log {
  Recorded ran;  // in order, by graph or not
  int direct = 0, captures = 0, set = 0;
  Recorded *capture = nullptr;
  bool refuse_set = false;
  void *last = nullptr;
} log_;

Launched recorded(Function f, unsigned grid, void **arguments) {
  Launched l{static_cast<const char *>(f), grid, 0};
  if (l.function == "sized") {
    int32_t number = 0;
    memcpy(&number, arguments[1], sizeof number);
    l.argument = number;
  } else {
    memcpy(&l.argument, arguments[0], sizeof l.argument);
  }
  return l;
}

Driver made_driver(bool with_capture_info) {
  Driver d = {};
  d.module_function = [](Function *f, Module, const char *name) { return *f = const_cast<char *>(name), 0; };
  d.launch = [](Function f, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **a,
                void **) {
    if (log_.capture)
      log_.capture->push_back(recorded(f, x, a));
    else
      log_.ran.push_back(recorded(f, x, a)), ++log_.direct;
    return 0;
  };
  d.capture_begin = [](Stream, int) { return log_.capture = new Recorded, ++log_.captures, 0; };
  d.capture_end = [](Stream, Graph *g) { return *g = log_.capture, log_.capture = nullptr, 0; };
  d.graph_instantiate = [](GraphExec *e, Graph g, unsigned long long) {
    return *e = new Recorded(*static_cast<Recorded *>(g)), 0;
  };
  d.graph_launch = [](GraphExec e, Stream) {
    const Recorded &r = *static_cast<Recorded *>(e);
    return log_.ran.insert(log_.ran.end(), r.begin(), r.end()), 0;
  };
  d.graph_destroy = [](Graph g) { return delete static_cast<Recorded *>(g), 0; };
  d.graph_exec_destroy = [](GraphExec e) { return delete static_cast<Recorded *>(e), 0; };
  d.graph_set_kernel = [](GraphExec e, GraphNode n, const KernelNode *k) {
    if (log_.refuse_set) return 1;
    (*static_cast<Recorded *>(e))[reinterpret_cast<size_t>(n) - 1] = recorded(k->function, k->grid[0], k->arguments);
    return ++log_.set, 0;
  };
  if (with_capture_info)
    d.capture_info = [](Stream, int *, unsigned long long *, Graph *, const GraphNode **last, size_t *count) {
      log_.last = reinterpret_cast<void *>(log_.capture->size());
      return *last = &log_.last, *count = 1, 0;
    };
  return d;
}

int64_t one(const int64_t *) { return 1; }
int64_t length(const int64_t *symbols) { return symbols[0]; }
int64_t beyond_four(const int64_t *symbols) { return symbols[0] - 4; }

// plain(buffer); sized(buffer, N) with a grid of N; late(buffer) with a grid of N - 4; each as a launch of one segment.
class LauncherTest : public ::testing::Test {
 protected:
  LauncherTest() {
    log_ = Log();
    model_.launches = launches_;
    model_.launch_count = 3;
    model_.segments = &segment_;
    model_.segment_count = 1;
    at_.address = {0x1000};
  }
  void start(bool with_capture_info = true) {
    driver_ = made_driver(with_capture_info);
    launcher_.emplace_back(model_);
    ASSERT_EQ(launcher_[0].load(&driver_, nullptr, false), 0);
  }
  ~LauncherTest() override {
    for (Launcher &l : launcher_) l.drop_graphs();
  }
  // One run at length n; what ran is what was asked for, whatever way it went.
  void run(int64_t n, Address address = 0x1000) {
    if (at_.symbols != std::vector<int64_t>{n} || at_.address[0] != address) ++at_.version;
    at_.symbols = {n};
    at_.address[0] = address;
    log_.ran.clear();
    log_.direct = log_.captures = log_.set = 0;
    ASSERT_EQ(launcher_[0].run(0, at_, nullptr, nullptr), 0);
    Recorded want;
    const int64_t a = static_cast<int64_t>(address);
    want.push_back({"plain", 1, a});
    if (n > 0) want.push_back({"sized", static_cast<unsigned>(n), n});
    if (n > 4) want.push_back({"late", static_cast<unsigned>(n - 4), a});
    EXPECT_EQ(log_.ran, want) << "at length " << n;
  }

  ArgumentTable buffer_[1] = {{ArgumentKind::kBuffer, 0}};
  ArgumentTable both_[2] = {{ArgumentKind::kBuffer, 0}, {ArgumentKind::kSymbol, 0}};
  LaunchTable launches_[3] = {{"plain", {one, one, one}, 32, 0, buffer_, 1, nullptr},
                              {"sized", {length, one, one}, 32, 0, both_, 2, nullptr},
                              {"late", {beyond_four, one, one}, 32, 0, buffer_, 1, nullptr}};
  SegmentTable segment_ = {0, 3, false};
  ModelTable model_ = {};
  Driver driver_ = {};
  Bindings at_;
  std::vector<Launcher> launcher_;
};

TEST_F(LauncherTest, AGraphFollowsALengthThatGrows) {
  start();
  run(5);
  EXPECT_EQ(log_.direct, 3);  // a model that runs once makes no graph
  run(6);
  EXPECT_EQ(log_.captures, 1);
  for (int64_t n = 7; n < 12; ++n) {
    run(n);
    EXPECT_EQ(log_.captures + log_.direct, 0);
    EXPECT_EQ(log_.set, 2);  // those that ask for N; plain stays
  }
  run(11);
  EXPECT_EQ(log_.captures + log_.direct + log_.set, 0);
  run(11, 0x2000);  // all values lie elsewhere
  EXPECT_EQ(log_.set, 3);
}

TEST_F(LauncherTest, WhatBecomesEmptyIsAnotherGraph) {
  start();
  run(6), run(6), run(7);
  run(3);
  EXPECT_EQ(log_.direct, 2);
  run(8);  // now only a length that comes again makes a graph
  EXPECT_EQ(log_.direct, 3);
  run(8);
  EXPECT_EQ(log_.captures, 1);
  run(9);
  EXPECT_EQ(log_.set, 2);
  run(4), run(0), run(4);
}

TEST_F(LauncherTest, AGraphThatIsHalfSetNeverRuns) {
  start();
  run(5), run(6), run(7);
  log_.refuse_set = true;
  run(8);
  EXPECT_EQ(log_.direct, 3);
  run(8);
  EXPECT_EQ(log_.captures, 1);
  run(9);
  EXPECT_EQ(log_.direct, 3);
}

TEST_F(LauncherTest, WithoutNamesOfNodesGraphsAreForLengthsThatComeAgain) {
  start(false);
  run(5), run(6);
  EXPECT_EQ(log_.captures, 1);
  run(7);
  EXPECT_EQ(log_.direct, 3);
  run(7);
  EXPECT_EQ(log_.captures, 1);
  run(7);
  EXPECT_EQ(log_.captures + log_.direct + log_.set, 0);
}

}  // namespace
}  // namespace optc::cuda
