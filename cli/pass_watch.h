#pragma once
// What single passes of the optimizer do (--time-passes, --dump-ir-after).

#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "driver/toolchain.h"

namespace optc::cli {

struct PassOptions {
  bool times = false;
  std::string dump_after, dump_folder;  // "changed", "all" or a pass; where the texts go
};
void add_pass_options(Verb &verb, PassOptions &options);

// Counts, times and prints the passes that run; must outlive the optimizer that it listens to.
class PassWatch {
 public:
  PassWatch(const PassOptions &options, Diagnostics &diagnostics);
  ~PassWatch();
  // Checks the options, makes the folder for texts and has `compile` obey them.
  Status prepare(CompileOptions &compile);
  std::string text() const;  // a table of all that ran, and how many texts were written; empty: not asked
  std::string json() const;  // the same, a JSON list

 private:
  struct Time {
    std::string pass;
    size_t runs = 0, rewrites = 0;
    double seconds = 0;
  };
  Status heard(const PassRun &run);
  const PassOptions &o_;
  Diagnostics &diagnostics_;
  std::vector<Time> times_;  // in the order in which the passes first ran
  size_t dumps_ = 0;
};

}  // namespace optc::cli
