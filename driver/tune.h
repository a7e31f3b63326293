#pragma once
// Which way of running is the quickest for each form of a model's kernels, measured through its bundle: `optc tune`.
//
// Lowering lists the ways of every kernel (ScheduleChoice). The model is compiled as many times as a form has ways, the
// n-th time with the n-th way of all forms, and the bundles run in turns, kernel by kernel under their profile: so a
// kernel is measured where it stands in the model, behind the kernels that are in front of it. A time is the least of
// its runs. Every other run makes a second such time, and how far both are apart is the noise; the model's way stays
// unless another is quicker by more than the noise of both. At the end the whole model is timed before and after.

#include <cstdint>
#include <string>
#include <vector>

#include "driver/samples.h"
#include "driver/toolchain.h"
#include "driver/tuning_cache.h"

namespace optc {

struct TuneOptions {
  int threads = 1;
  double seconds = 20;  // of measuring, of which a third is for the proof; building the bundles comes on top
};

struct FormTimes {
  struct Way {
    std::string what;
    double microseconds = 0;  // of a kernel of the form, the mean of all; negative: not measured
    double noise = 0;         // a part of it
  };
  std::string form, note;
  size_t kernels = 0;
  std::vector<Way> ways;  // the cost model's first
  size_t chosen = 0;
};

struct TuneReport {
  TuningCache cache;
  std::vector<FormTimes> forms;  // by the time that all kernels of a form take, the longest first
  size_t bundles = 0, rounds = 0, changed = 0;
  // The model as the cost model has it and as it was measured: the least time, and its noise. 0 where nothing changed.
  double before_ms = 0, after_ms = 0, noise = 0;
  // All choices together made it slower, so the cache has the cost model's.
  bool dropped = false;
};

// `known`: forms that are not measured again; options.tuning has their ways. `model` is the import of `path` that the
// inputs are for. With a GPU among the targets its kernels are measured, on the card.
Result<TuneReport> tune_model(const std::string &path, const Graph &model, const CompileOptions &options,
                              const std::vector<TunedForm> &known, InputSets &inputs, const TuneOptions &tune,
                              Listener &listener, Diagnostics &diagnostics);

}  // namespace optc
