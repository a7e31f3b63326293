#pragma once
// What a command does, step by step: shown while it runs (common.h, make_listener), and noted for --trace and --report.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace optc::cli {

// The steps of one command and the optimizer's passes, with their times; a step that failed has no end.
class StepRecord {
 public:
  void begin(std::string name);
  void end(std::string_view name, const std::string &facts);              // the last begun of this name
  void add_pass(std::string_view name, size_t rewrites, double seconds);  // that ends now
  double now() const;                                                     // seconds since the command began

  // In the format that chrome://tracing, Perfetto and speedscope open ("Trace Event Format", complete events).
  std::string trace() const;
  std::string json() const;  // a JSON list of the steps: step, facts, start, seconds (null: it failed)

 private:
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::string name, facts;
    double start = 0, seconds = -1;  // negative: it has not ended
    bool pass = false;
  };
  Clock::time_point start_ = Clock::now();
  std::vector<Event> events_;
};

}  // namespace optc::cli
