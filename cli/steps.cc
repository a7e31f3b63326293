#include "cli/steps.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli/common.h"
#include "cli/internal_json.h"

namespace optc::cli {
namespace {

// Columns of a UTF-8 text.
int width(const std::string &text) {
  int columns = 0;
  for (const char c : text) columns += (c & 0xC0) != 0x80;
  return columns;
}

// The columns of the terminal behind stderr; 0: not known.
int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// The text in at most `most` columns.
std::string fitted(const std::string &text, int most) {
  if (width(text) <= most) return text;
  size_t end = 0;
  for (int columns = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) == 0x80) continue;
    if (columns == std::max(0, most - 1)) break;
    ++columns;
  }
  return text.substr(0, end) + "…";
}

class TextListener : public Listener {
 public:
  TextListener(bool quiet, bool all, bool terminal) : quiet_(quiet), all_(all), terminal_(terminal && !quiet) {
    if (terminal_) ticker_ = std::thread([this] { tick(); });
  }
  void begin(std::string_view step) override {
    const std::lock_guard lock(mutex_);
    step_ = step;
    state_ = "";
    begun_ = Clock::now();
    if (terminal_) draw();
  }
  void progress(int64_t done, int64_t total) override {
    if (!terminal_ || total <= 0) return;
    const std::lock_guard lock(mutex_);
    constexpr int kWidth = 30;
    const int full = static_cast<int>(kWidth * done / total);
    state_ = fmt::format("{:━<{}}{:╌<{}} {}/{}", "", full, "", kWidth - full, done, total);
    const auto now = Clock::now();
    if (done < total && now - drawn_ < std::chrono::milliseconds(100)) return;
    draw();
  }
  void end(std::string_view step, const std::string &facts, double seconds) override {
    const std::lock_guard lock(mutex_);
    step_.clear();
    if (quiet_) return;
    std::string line = fmt::format("{:<15} {}", step, facts);
    // A step that is taken again (a second input set, a bundle that is compiled for the model just read) says nothing
    // new.
    const bool fresh = said_.insert(line).second || all_;
    const std::string time = seconds >= 0.005 ? fmt::format("{:.2f} s", seconds) : "";
    // Of a terminal a line takes one row: the facts give way, the time stands at the right.
    constexpr int kColumns = 108;
    const int columns = terminal_ ? terminal_width() : 0;
    if (columns > 0) line = fitted(line, std::max(16, columns - 1 - (time.empty() ? 0 : width(time) + 2)));
    const int at = columns > 0 ? std::min(kColumns, columns - 1 - width(time)) : kColumns;
    if (!time.empty()) line += std::string(static_cast<size_t>(std::max(2, at - width(line))), ' ') + time;
    if (fresh)
      std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\x1b[K" : "", line.c_str());
    else if (terminal_)
      std::fputs("\r\x1b[K", stderr);
  }
  bool wants_details() const override { return all_; }
  ~TextListener() override {
    if (!terminal_) return;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    ticker_.join();
    std::fputs("\r\x1b[K", stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  void draw() {
    drawn_ = Clock::now();
    const double seconds = std::chrono::duration<double>(drawn_ - begun_).count();
    const std::string line = fmt::format(
        "{:<15} {}{}", step_, state_,
        seconds < 1 ? (state_.empty() ? "..." : "") : fmt::format("{}{:.0f} s", state_.empty() ? "" : "   ", seconds));
    const int columns = terminal_width();
    std::fprintf(stderr, "\r\x1b[K%s", columns > 0 ? fitted(line, columns - 1).c_str() : line.c_str());
    std::fflush(stderr);
  }
  void tick() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      wake_.wait_for(lock, std::chrono::seconds(1));
      if (!ended_ && !step_.empty()) draw();
    }
  }
  const bool quiet_, all_, terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread ticker_;
  bool ended_ = false;
  std::set<std::string> said_;
  std::string step_, state_;  // the step that runs; its bar
  Clock::time_point begun_, drawn_;
};

// Hands on what it hears and notes it.
class RecordingListener : public Listener {
 public:
  RecordingListener(std::unique_ptr<Listener> to, std::shared_ptr<StepRecord> record)
      : to_(std::move(to)), record_(std::move(record)) {}
  void begin(std::string_view step) override {
    record_->begin(std::string(step));
    to_->begin(step);
  }
  void progress(int64_t done, int64_t total) override { to_->progress(done, total); }
  void end(std::string_view step, const std::string &facts, double seconds) override {
    if (!step.empty()) record_->end(step, facts);
    to_->end(step, facts, seconds);
  }
  bool wants_details() const override { return to_->wants_details(); }

 private:
  std::unique_ptr<Listener> to_;
  std::shared_ptr<StepRecord> record_;
};

}  // namespace

double StepRecord::now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void StepRecord::begin(std::string name) { events_.push_back({std::move(name), "", now(), -1, false}); }

void StepRecord::end(std::string_view name, const std::string &facts) {
  const auto open =
      std::find_if(events_.rbegin(), events_.rend(), [&](const Event &e) { return e.seconds < 0 && e.name == name; });
  if (open == events_.rend()) return;
  open->facts = facts;
  open->seconds = now() - open->start;
}

void StepRecord::add_pass(std::string_view name, size_t rewrites, double seconds) {
  events_.push_back(
      {std::string(name), fmt::format("{} rewrites", rewrites), std::max(0.0, now() - seconds), seconds, true});
}

std::string StepRecord::trace() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  list.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "optc"}}}});
  for (const Event &e : events_)
    list.push_back({{"name", e.name},
                    {"cat", e.pass ? "pass" : "step"},
                    {"ph", "X"},
                    {"ts", 1e6 * e.start},
                    {"dur", 1e6 * (e.seconds < 0 ? now() - e.start : e.seconds)},
                    {"pid", 1},
                    {"tid", 1},
                    {"args", {{"facts", e.seconds < 0 ? "did not end" : e.facts}}}});
  return json_text({{"traceEvents", list}, {"displayTimeUnit", "ms"}});
}

std::string StepRecord::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Event &e : events_)
    if (!e.pass)
      list.push_back({{"step", e.name},
                      {"facts", e.facts},
                      {"start", e.start},
                      {"seconds", e.seconds < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(e.seconds)}});
  return json_text(list);
}

std::unique_ptr<Listener> make_listener(const CommonOptions &o) {
  const bool terminal = o.progress != "lines" && isatty(STDERR_FILENO) != 0;
  std::unique_ptr<Listener> listener =
      std::make_unique<TextListener>(o.quiet || o.progress == "off", o.verbose > 0, terminal);
  if (!o.record) return listener;
  return std::make_unique<RecordingListener>(std::move(listener), o.record);
}

}  // namespace optc::cli
