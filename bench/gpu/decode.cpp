// decode STEPS [WARM]: one token after another through the bundle `decoder` (examples/chat/make_model.py, compiled with
// --alias 'past_*=present_*' and a GPU target), whose caches lie on the card and grow by a row with each: microseconds
// a token, the mean of STEPS after WARM; the same where the length stays, at the last one; and what the tokens add up
// to, by which two builds are compared. Built by decode.sh, beside README.md.
#include <decoder.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

int main(int argc, char **argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 256, warm = argc > 2 ? std::atoll(argv[2]) : 64;
  const int64_t room = steps + warm;
  std::string why;
  const optc::cuda::Driver *driver = optc::cuda::Driver::get(&why);
  optc::cuda::Context context = nullptr;
  if (!driver || driver->context_retain(&context, 0) || driver->context_push(context)) {
    std::fprintf(stderr, "no card: %s\n", why.c_str());
    return 1;
  }
  optc_options options = {};
  options.device_type = OPTC_CUDA;
  decoder::Model model(options);
  const optc_api &api = decoder::Model::api();
  std::vector<optc_value> inputs(api.input_count()), outputs(api.output_count());
  int64_t token = 1;
  const auto tensor = [](const optc_value_info &info, void *data, size_t bytes, int32_t device) {
    optc_value v = {};
    v.tensor.data = data, v.tensor.capacity_bytes = bytes;
    v.tensor.type = info.type, v.tensor.rank = info.rank, v.tensor.device_type = device;
    for (int32_t a = 0; a < info.rank; ++a) v.tensor.dims[a] = info.dims[a].value;
    return v;
  };
  inputs[0] = tensor(*api.input_info(0), &token, sizeof token, OPTC_CPU);
  inputs[0].tensor.dims[0] = 1;
  std::vector<float> logits(static_cast<size_t>(api.output_info(0)->dims[0].value));
  outputs[0] = tensor(*api.output_info(0), logits.data(), logits.size() * sizeof(float), OPTC_CPU);
  for (size_t i = 0; i < api.alias_count(); ++i) {
    const optc_alias &state = *api.alias_info(i);
    const optc_value_info &past = *api.input_info(state.input);
    const size_t bytes = static_cast<size_t>(past.dims[0].value * room * past.dims[2].value) * sizeof(float);
    optc::cuda::Address address = 0;
    if (driver->allocate(&address, bytes)) return 1;
    inputs[state.input] = tensor(past, reinterpret_cast<void *>(address), bytes, OPTC_CUDA);
    outputs[state.output] = tensor(past, reinterpret_cast<void *>(address), bytes, OPTC_CUDA);
  }
  int64_t sum = 0;
  std::chrono::steady_clock::time_point start;
  for (int64_t t = 0; t < room; ++t) {
    if (t == warm) start = std::chrono::steady_clock::now();
    for (size_t i = 1; i < inputs.size(); ++i) inputs[i].tensor.dims[1] = t;
    model.run(inputs.data(), outputs.data());
    token = (std::max_element(logits.begin(), logits.begin() + 256) - logits.begin() + 7 * t) % 256;
    sum += token * (t + 1);
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  start = std::chrono::steady_clock::now();
  for (int64_t t = 0; t < steps; ++t) model.run(inputs.data(), outputs.data());
  const std::chrono::duration<double, std::micro> again = std::chrono::steady_clock::now() - start;
  const double count = static_cast<double>(steps);
  std::printf("%.1f us a token, %.1f at one length, sum %lld\n", took.count() / count, again.count() / count,
              static_cast<long long>(sum));
  return 0;
}
