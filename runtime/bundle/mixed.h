// mixed.h: for models some of whose kernels have no GPU form: the schedule on the host runs those, launches the others
// by segments, and copies what crosses.
#pragma once
#include "runtime/bundle/model.h"
#include "runtime/cuda/session.h"

namespace optc {

template <class R>
bool gpu_good(R &run, cuda::Session &gpu, optc_status status) {
  if (status == OPTC_OK) return true;
  run.fail(status, "%s", gpu.error().c_str());
  return false;
}
template <class R>
bool gpu_begin(R &run, cuda::Session &gpu, std::initializer_list<int64_t> dims) {
  return gpu_good(run, gpu, gpu.begin(dims.begin(), static_cast<int>(dims.size())));
}
template <class R>
bool gpu_upload(R &run, cuda::Session &gpu, int buffer, const void *from) {
  return gpu_good(run, gpu, gpu.upload(buffer, from));
}
template <class R>
bool gpu_download(R &run, cuda::Session &gpu, int buffer, void *to) {
  return gpu_good(run, gpu, gpu.download(buffer, to));
}
// Returns before the launches are done, unless their time is wanted.
template <class R>
bool gpu_segment(R &run, cuda::Session &gpu, int segment) {
  return gpu_good(run, gpu, gpu.segment(segment)) && (!run.profiling || gpu_good(run, gpu, gpu.wait()));
}

}  // namespace optc
