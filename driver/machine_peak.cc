#include "driver/machine_peak.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "driver/places.h"
#include "driver/processor.h"
#include "runtime/cpu/isa.h"

namespace optc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSeconds = 0.04;                                                 // of each measurement
constexpr double kSizes[] = {16 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20};  // bytes of all threads
constexpr int kChains = 12;  // independent sums: more than latency times units of any processor

// What was computed is used, so that it is computed.
void keep(double value) {
  static std::atomic<double> sink;
  sink.store(value, std::memory_order_relaxed);
}

// Each does `count` rounds of kChains multiply-adds on vectors and gives the operations of that.
#if OPTC_X86
__attribute__((target("avx512f"))) double multiply_add_avx512(int64_t count) {
  __m512 sums[kChains];
  const __m512 a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(0.001F);
  for (__m512 &s : sums) s = b;
  for (int64_t i = 0; i < count; ++i) OPTC_UNROLL
  for (__m512 &s : sums) s = _mm512_fmadd_ps(s, a, b);
  for (int k = 1; k < kChains; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  float one[16];
  _mm512_storeu_ps(one, sums[0]);
  keep(static_cast<double>(one[0]));
  return 2.0 * 16 * kChains * static_cast<double>(count);
}
__attribute__((target("avx2,fma"))) double multiply_add_avx2(int64_t count) {
  __m256 sums[kChains];
  const __m256 a = _mm256_set1_ps(0.999F), b = _mm256_set1_ps(0.001F);
  for (__m256 &s : sums) s = b;
  for (int64_t i = 0; i < count; ++i) OPTC_UNROLL
  for (__m256 &s : sums) s = _mm256_fmadd_ps(s, a, b);
  for (int k = 1; k < kChains; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
  keep(static_cast<double>(_mm256_cvtss_f32(sums[0])));
  return 2.0 * 8 * kChains * static_cast<double>(count);
}
// The same in f64.
__attribute__((target("avx512f"))) double multiply_add_f64_avx512(int64_t count) {
  __m512d sums[kChains];
  const __m512d a = _mm512_set1_pd(0.999), b = _mm512_set1_pd(0.001);
  for (__m512d &s : sums) s = b;
  for (int64_t i = 0; i < count; ++i) OPTC_UNROLL
  for (__m512d &s : sums) s = _mm512_fmadd_pd(s, a, b);
  for (int k = 1; k < kChains; ++k) sums[0] = _mm512_add_pd(sums[0], sums[k]);
  double one[8];
  _mm512_storeu_pd(one, sums[0]);
  keep(one[0]);
  return 2.0 * 8 * kChains * static_cast<double>(count);
}
__attribute__((target("avx2,fma"))) double multiply_add_f64_avx2(int64_t count) {
  __m256d sums[kChains];
  const __m256d a = _mm256_set1_pd(0.999), b = _mm256_set1_pd(0.001);
  for (__m256d &s : sums) s = b;
  for (int64_t i = 0; i < count; ++i) OPTC_UNROLL
  for (__m256d &s : sums) s = _mm256_fmadd_pd(s, a, b);
  for (int k = 1; k < kChains; ++k) sums[0] = _mm256_add_pd(sums[0], sums[k]);
  keep(_mm256_cvtsd_f64(sums[0]));
  return 2.0 * 4 * kChains * static_cast<double>(count);
}
// Products of 8-bit integers as the kernels do them (runtime/cpu/gemm_i8.h). Tiles: four sums, two blocks of A and of
// B.
double multiply_bytes_amx(int64_t count) {
  alignas(64) uint8_t shape[64] = {1};
  for (int t = 0; t < 8; ++t) shape[16 + 2 * t] = 64, shape[48 + t] = 16;
  alignas(64) uint8_t block[16 * 64];
  memset(block, 1, sizeof block);
  const int64_t stride = 64;
  __asm__ volatile("ldtilecfg %0" : : "m"(shape) : "memory");
  __asm__ volatile(
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      "tileloadd (%0,%1,1), %%tmm4\n tileloadd (%0,%1,1), %%tmm5\n"
      "tileloadd (%0,%1,1), %%tmm6\n tileloadd (%0,%1,1), %%tmm7"
      :
      : "r"(block), "r"(stride)
      : "memory");
  for (int64_t i = 0; i < count; ++i)
    __asm__ volatile(
        "tdpbusd %%tmm6, %%tmm4, %%tmm0\n tdpbusd %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbusd %%tmm6, %%tmm5, %%tmm2\n tdpbusd %%tmm7, %%tmm5, %%tmm3"
        :
        :);
  __asm__ volatile("tilerelease");
  return 2.0 * 4 * 16 * 16 * 64 * static_cast<double>(count);
}
__attribute__((target("avx512f"))) double multiply_bytes_vnni(int64_t count) {
  __m512i sums[kChains];
  const __m512i a = _mm512_set1_epi32(0x01010101);
  for (__m512i &s : sums) s = a;
  for (int64_t i = 0; i < count; ++i) OPTC_UNROLL
  for (__m512i &s : sums) __asm__("vpdpbusd %1, %1, %0" : "+v"(s) : "v"(a));
  for (int k = 1; k < kChains; ++k) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
  int32_t one[16];
  _mm512_storeu_si512(one, sums[0]);
  keep(one[0]);
  return 2.0 * 64 * kChains * static_cast<double>(count);
}
__attribute__((target("avx512f,avx512bw"))) double multiply_pairs_avx512(int64_t count) {
  __m512i sums[kChains];
  __m512i a = _mm512_set1_epi32(0x00010001);
  for (__m512i &s : sums) s = a;
  for (int64_t i = 0; i < count; ++i) {
    __asm__("" : "+v"(a));  // another one each time, for all that is known
    OPTC_UNROLL for (__m512i &s : sums) s = _mm512_add_epi32(s, _mm512_madd_epi16(s, a));
  }
  for (int k = 1; k < kChains; ++k) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
  int32_t one[16];
  _mm512_storeu_si512(one, sums[0]);
  keep(one[0]);
  return 2.0 * 32 * kChains * static_cast<double>(count);
}
__attribute__((target("avx2"))) double multiply_pairs_avx2(int64_t count) {
  __m256i sums[kChains];
  __m256i a = _mm256_set1_epi32(0x00010001);
  for (__m256i &s : sums) s = a;
  for (int64_t i = 0; i < count; ++i) {
    __asm__("" : "+x"(a));
    OPTC_UNROLL for (__m256i &s : sums) s = _mm256_add_epi32(s, _mm256_madd_epi16(s, a));
  }
  for (int k = 1; k < kChains; ++k) sums[0] = _mm256_xor_si256(sums[0], sums[k]);
  keep(_mm256_extract_epi32(sums[0], 0));
  return 2.0 * 16 * kChains * static_cast<double>(count);
}
// Reads `count` vectors of 32 bytes.
__attribute__((target("avx2"))) void read_avx2(const void *data, int64_t count) {
  const auto *at = static_cast<const __m256i *>(data);
  __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int64_t i = 0; i + 4 <= count; i += 4) OPTC_UNROLL
  for (int k = 0; k < 4; ++k) sums[k] = _mm256_xor_si256(sums[k], _mm256_load_si256(at + i + k));
  sums[0] = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  keep(_mm256_extract_epi32(sums[0], 0));
}
#endif
double multiply_add(int64_t count) {
  float sums[4 * kChains];
  for (float &s : sums) s = 0.001F;
  for (int64_t i = 0; i < count; ++i) OPTC_UNROLL
  for (float &s : sums) s = s * 0.999F + 0.001F;
  for (int k = 1; k < 4 * kChains; ++k) sums[0] += sums[k];
  keep(static_cast<double>(sums[0]));
  return 2.0 * 4 * kChains * static_cast<double>(count);
}
void read_words(const void *data, int64_t count) {
  const auto *at = static_cast<const uint64_t *>(data);
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= 4 * count; i += 8) OPTC_UNROLL
  for (int k = 0; k < 8; ++k) sums[k] ^= at[i + k];
  for (int k = 1; k < 8; ++k) sums[0] ^= sums[k];
  keep(static_cast<double>(sums[0]));
}

double multiply_adds(int64_t count) {
#if OPTC_X86
  if (optc_isa() >= OPTC_ISA_AVX512) return multiply_add_avx512(count);
  if (optc_isa() >= OPTC_ISA_AVX2) return multiply_add_avx2(count);
#endif
  return multiply_add(count);
}
double multiply_adds_f64(int64_t count) {
#if OPTC_X86
  if (optc_isa() >= OPTC_ISA_AVX512) return multiply_add_f64_avx512(count);
  if (optc_isa() >= OPTC_ISA_AVX2) return multiply_add_f64_avx2(count);
#endif
  return multiply_add(count) / 2;  // half as many fit in a vector
}
// What multiplies bytes in the instruction set in use, and its name; null: nothing of its own.
std::pair<double (*)(int64_t), std::string_view> byte_products() {
#if OPTC_X86
  if (optc_isa_dot() == OPTC_DOT_AMX) return {multiply_bytes_amx, "AMX"};
  if (optc_isa_dot() == OPTC_DOT_VNNI) return {multiply_bytes_vnni, "VNNI"};
  if (optc_isa() >= OPTC_ISA_AVX512) return {multiply_pairs_avx512, "pairs of 16 bits"};
  if (optc_isa() >= OPTC_ISA_AVX2) return {multiply_pairs_avx2, "pairs of 16 bits"};
#endif
  return {nullptr, ""};
}
void read_all(const void *data, int64_t count) {
#if OPTC_X86
  if (optc_isa() >= OPTC_ISA_AVX2) return read_avx2(data, count);
#endif
  read_words(data, count);
}

// Calls `once` on every thread over and over, all at the same time; the sum of the best that each does a second. Calls
// take microseconds, so that on a busy machine some of them are not interrupted.
double rate_of(int threads, const std::function<double(int thread)> &once) {
  std::vector<double> best(static_cast<size_t>(threads));
  std::atomic<int> waiting{threads};
  const auto work = [&](int thread) {
    once(thread);  // warm
    --waiting;
    while (waiting > 0) std::this_thread::yield();
    const auto start = Clock::now();
    for (auto from = start; std::chrono::duration<double>(from - start).count() < kSeconds;) {
      const double done = once(thread);
      const auto to = Clock::now();
      double &most = best[static_cast<size_t>(thread)];
      most = std::max(most, done / std::max(1e-9, std::chrono::duration<double>(to - from).count()));
      from = to;
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread &t : others) t.join();
  double sum = 0;
  for (const double rate : best) sum += rate;
  return sum;
}

std::string first_word(const std::string &path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

double MachinePeak::bandwidth_of(double bytes) const {
  double rate = bandwidth.empty() ? 0 : bandwidth.front().second;
  for (const auto &[size, of_size] : bandwidth)
    if (size <= bytes) rate = of_size;
  return rate;
}

MachinePeak measure_peak(int threads) {
  constexpr int64_t kRounds = 1 << 13, kPart = 1 << 14;  // of a call: multiply-adds of each chain, vectors
  constexpr int64_t kVector = 32;                        // bytes
  threads = std::max(1, threads);
  MachinePeak peak;
  peak.flops = rate_of(threads, [](int) { return multiply_adds(kRounds); });
  peak.double_flops = rate_of(threads, [](int) { return multiply_adds_f64(kRounds); });
  const auto [multiply_bytes, unit] = byte_products();
  peak.byte_unit = unit;
  if (multiply_bytes)
    peak.byte_operations = rate_of(threads, [multiply = multiply_bytes](int) { return multiply(kRounds / 8); });
  const size_t most = static_cast<size_t>(kSizes[std::size(kSizes) - 1]) / static_cast<size_t>(threads) / 128 * 128;
  std::vector<std::unique_ptr<uint8_t, void (*)(void *)>> data;
  for (int t = 0; t < threads; ++t) {
    data.emplace_back(static_cast<uint8_t *>(std::aligned_alloc(128, most)), std::free);
    if (!data.back()) return peak;
    memset(data.back().get(), t + 1, most);
  }
  std::vector<int64_t> at(static_cast<size_t>(threads));  // vectors; where a thread goes on
  for (const double size : kSizes) {
    const int64_t own = std::max<int64_t>(4, static_cast<int64_t>(size / threads / kVector)),
                  part = std::min(own, kPart);
    std::fill(at.begin(), at.end(), 0);
    peak.bandwidth.emplace_back(size, rate_of(threads, [&](int thread) {
                                  int64_t &here = at[static_cast<size_t>(thread)];
                                  double read = 0;
                                  for (; read < kPart; read += static_cast<double>(part)) {
                                    if (here + part > own) here = 0;
                                    read_all(data[static_cast<size_t>(thread)].get() + kVector * here, part);
                                    here += part;
                                  }
                                  return read * kVector;
                                }));
  }
  // A larger size is never faster; where it was measured so, the machine was busy before.
  for (size_t i = peak.bandwidth.size(); i-- > 1;)
    peak.bandwidth[i - 1].second = std::max(peak.bandwidth[i - 1].second, peak.bandwidth[i].second);
  return peak;
}

std::vector<std::pair<std::string, std::string>> machine_record() {
  std::vector<std::pair<std::string, std::string>> record = {
      {"processor", processor_name()},
      {"cores", std::to_string(std::thread::hardware_concurrency())},
      {"instruction_set", instruction_set()}};
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("cpu MHz", 0) == 0 && line.find(": ") != std::string::npos) {
      record.emplace_back("clock_mhz", line.substr(line.find(": ") + 2));
      break;
    }
  record.emplace_back("governor", first_word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  record.emplace_back("memory_bytes", std::to_string(memory_bytes()));
  utsname system{};
  if (uname(&system) == 0)
    record.emplace_back("system", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  record.emplace_back("load", first_word("/proc/loadavg"));
  std::erase_if(record, [](const auto &field) { return field.second.empty(); });
  return record;
}

}  // namespace optc
