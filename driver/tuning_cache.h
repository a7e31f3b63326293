#pragma once
// The file of `optc tune`: what was measured, on which machine. A build that is given it (`--tuning-cache`) makes the
// same choices again, to the byte. It names ways that lowering offers and holds no schedule: what a kernel cannot run
// by is refused where it is chosen (lowering/schedule/choose.cc).

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/tuning.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct TunedForm {
  std::string form;        // ScheduleChoice::form
  std::string note;        // a kernel of it, for readers
  std::string way, model;  // the quickest; what the cost model takes
  double microseconds = 0, model_microseconds = 0;
  double noise = 0;  // by which part of the time a measurement of it came out differently when it was repeated
};

struct TuningCache {
  std::string target = "cpu";           // or a GPU's: "sm_90a"
  std::string processor, instructions;  // processor_name and instruction_set; of a GPU's the card, and empty
  int threads = 1;
  std::vector<TunedForm> forms;
};
// The cache of this machine, with no forms.
TuningCache tuning_of_here(const std::string &target, int threads);

// JSON, a form a line, sorted by form.
std::string print(const TuningCache &cache);
// Reads what print gives. `name`: of the file, for messages. kUsage where it is damaged, too large, or of another
// version of the schedules (kSchedulesVersion).
Result<TuningCache> parse_tuning(std::string_view text, const std::string &name, Diagnostics &diagnostics);
Result<TuningCache> read_tuning(const std::string &path, Diagnostics &diagnostics);

// The files' choices, of a form those of the first file that has it. kUsage also where a file was measured on another
// machine, unless `foreign`, or for a GPU that is not among `targets`.
Result<std::shared_ptr<const TuningTable>> load_tuning(const std::vector<std::string> &paths,
                                                       const std::vector<std::string> &targets, bool foreign,
                                                       Diagnostics &diagnostics);

}  // namespace optc
