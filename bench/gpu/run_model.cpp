// Runs the GPU half of a bundle (gpu_bundle's cuda.cpp, linked in) on one card: run_model WEIGHTS INPUTS EXPECTED.
// INPUTS and EXPECTED are written by prepare.py: for each tensor type, rank, dims, bytes. Prints errors beside
// EXPECTED, the median time of a graph launch, and the slowest kernels.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "runtime/cuda/session.h"

namespace model_code {
const optc::cuda::ModelTable &cuda_model();
}

namespace {

struct Tensor {
  optc_tensor t{};
  std::vector<char> bytes;
};

std::vector<Tensor> read(const char *path) {
  std::ifstream in(path, std::ios::binary);
  int64_t count = 0;
  in.read(reinterpret_cast<char *>(&count), 8);
  std::vector<Tensor> out(static_cast<size_t>(count));
  for (Tensor &x : out) {
    int64_t head[3];
    in.read(reinterpret_cast<char *>(head), 24);
    x.t.type = static_cast<int32_t>(head[0]);
    x.t.rank = static_cast<int32_t>(head[1]);
    in.read(reinterpret_cast<char *>(x.t.dims), 8 * x.t.rank);
    x.bytes.resize(static_cast<size_t>(head[2]));
    in.read(x.bytes.data(), static_cast<std::streamsize>(x.bytes.size()));
    x.t.data = x.bytes.data();
    x.t.capacity_bytes = x.bytes.size();
    x.t.device_type = OPTC_CPU;
  }
  return out;
}

double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double value(const Tensor &t, size_t i) {
  switch (t.t.type) {
    case 1:
      return reinterpret_cast<const float *>(t.bytes.data())[i];
    case 11:
      return reinterpret_cast<const double *>(t.bytes.data())[i];
    case 6:
      return reinterpret_cast<const int32_t *>(t.bytes.data())[i];
    case 7:
      return static_cast<double>(reinterpret_cast<const int64_t *>(t.bytes.data())[i]);
    case 10: {
      const uint16_t h = reinterpret_cast<const uint16_t *>(t.bytes.data())[i];
      const int e = h >> 10 & 31, m = h & 1023;
      const double v = e == 0 ? std::ldexp(m, -24) : e == 31 ? (m ? NAN : INFINITY) : std::ldexp(m + 1024, e - 25);
      return h & 0x8000 ? -v : v;
    }
    default:
      return t.bytes[i];
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  std::vector<char> weights((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<Tensor> in = read(argv[2]), want = read(argv[3]), got = want;
  optc_status status;
  std::string error;
  const double start = now();
  auto session = optc::cuda::Session::create(model_code::cuda_model(), weights.data(), 0, &status, &error);
  if (!session) {
    std::printf("no session: %s\n", error.c_str());
    return 1;
  }
  const double loaded = now();
  std::vector<optc_tensor> inputs;
  std::vector<optc_value> outputs(got.size());
  for (const Tensor &t : in) inputs.push_back(t.t);
  for (size_t i = 0; i < got.size(); ++i) {
    std::fill(got[i].bytes.begin(), got[i].bytes.end(), char(0xFF));
    got[i].t.data = got[i].bytes.data();
    outputs[i].tensor = got[i].t;
  }
  status = session->run(inputs.data(), outputs.data());
  if (status != OPTC_OK) {
    std::printf("run: status %d: %s\n", status, session->error().c_str());
    return 1;
  }
  bool good = true;
  if (std::getenv("OPTC_LIBCUDA")) {  // an emulated card: the host's memory is its own, so the same tensors lie on it
    std::vector<std::vector<char>> first;
    for (size_t i = 0; i < got.size(); ++i) {
      first.push_back(got[i].bytes);
      std::fill(got[i].bytes.begin(), got[i].bytes.end(), char(0xFF));
    }
    for (optc_tensor &t : inputs) t.device_type = OPTC_CUDA;
    for (optc_value &v : outputs) v.tensor.device_type = OPTC_CUDA;
    status = session->run_async(inputs.data(), outputs.data(), nullptr);
    for (size_t i = 0; i < got.size(); ++i) good = good && first[i] == got[i].bytes;
    if (status != OPTC_OK || !good) {
      std::printf("run_async differs: status %d: %s\n", status, session->error().c_str());
      good = false;
    }
  }
  for (size_t i = 0; i < got.size(); ++i) {
    size_t size = got[i].t.type == 1 || got[i].t.type == 6    ? 4
                  : got[i].t.type == 10                       ? 2
                  : got[i].t.type == 7 || got[i].t.type == 11 ? 8
                                                              : 1;
    double worst = 0, top = 0;
    size_t best_want = 0, best_got = 0, bad = 0;
    for (size_t k = 0; k < got[i].bytes.size() / size; ++k) {
      const double g = value(got[i], k), w = value(want[i], k);
      if (!(std::fabs(g - w) <= worst)) worst = std::fabs(g - w);
      if (std::isnan(g) != std::isnan(w)) ++bad;
      top = std::max(top, std::fabs(w));
      if (w > value(want[i], best_want)) best_want = k;
      if (g > value(got[i], best_got)) best_got = k;
    }
    const double relative = top > 0 ? worst / top : worst;
    std::printf("output %zu: max|d|/max|y| %.2e, argmax %s, %zu of %zu NaN\n", i, relative,
                best_want == best_got ? "same" : "DIFFERS", bad, got[i].bytes.size() / size);
    good = good && relative <= (argc > 4 ? std::atof(argv[4]) : 1e-4) && bad == 0;
  }
  if (!std::getenv("OPTC_LIBCUDA") && !std::getenv("OPTC_RUN_ONCE")) {  // once: under a profiler
    std::vector<double> times;
    session->repeat(10);
    for (int i = 0; i < 30; ++i) {
      const double t0 = now();
      session->repeat(10);
      times.push_back((now() - t0) / 10);
    }
    std::sort(times.begin(), times.end());
    std::printf("graph: median %.1f us, min %.1f us; load %.0f ms; arena %zu bytes\n", times[times.size() / 2],
                times[0], (loaded - start) / 1e3, session->arena_bytes());
    std::vector<double> each;
    session->profile(&each, 20, now);
    const auto &model = model_code::cuda_model();
    std::vector<size_t> order(each.size());
    double total = 0;
    for (size_t i = 0; i < order.size(); ++i) order[i] = i, total += each[i];
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return each[a] > each[b]; });
    std::printf("launch by launch: %.1f us together; slowest:\n", total);
    for (size_t i = 0; i < std::min<size_t>(order.size(), 12); ++i)
      std::printf("  %8.2f us  #%zu %s\n", each[order[i]], order[i], model.launches[order[i]].function);
  }
  std::printf("%s\n", good ? "ok" : "WRONG");
  return good ? 0 : 1;
}
