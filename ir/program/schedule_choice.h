#pragma once
// How a kernel could run: by the cost model, or by what was measured (lowering/tuning.h). For reports, manifest,
// `inspect` and `tune`.

#include <string>
#include <vector>

namespace optc {

struct ScheduleChoice {
  struct Way {
    std::string what;         // "f16 64x128x64 split 2", "conv.winograd4"
    double microseconds = 0;  // by the cost model; 0: it gives an order alone
  };
  std::string kernel;
  std::string form;         // what decides the choice (schedule_form); empty where no tuning was asked for
  bool measured = false;    // the first way was chosen by a measurement
  std::vector<Way> ranked;  // the chosen way first, then its runners-up
};

}  // namespace optc
