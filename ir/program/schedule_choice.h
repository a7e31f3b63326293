#pragma once
// How a kernel could run, by the cost model: for reports, manifest and `inspect`.

#include <string>
#include <vector>

namespace optc {

struct ScheduleChoice {
  struct Way {
    std::string what;  // "f16 64x128x64 split 2"
    double microseconds = 0;
  };
  std::string kernel;
  std::vector<Way> ranked;  // the chosen way first, then its runners-up
};

}  // namespace optc
