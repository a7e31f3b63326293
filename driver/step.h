#pragma once
// Step: tells the Listener of the begin, and with end() of the facts and the time, of one step of the toolchain.

#include <chrono>
#include <string>
#include <utility>

#include "driver/toolchain.h"

namespace optc {

class Step {
 public:
  Step(Listener &listener, std::string name) : listener_(listener), name_(std::move(name)), start_(Clock::now()) {
    listener_.begin(name_);
  }
  void end(const std::string &facts) {
    listener_.end(name_, facts, std::chrono::duration<double>(Clock::now() - start_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Listener &listener_;
  std::string name_;
  Clock::time_point start_;
};

}  // namespace optc
