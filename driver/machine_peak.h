#pragma once
// What this processor can do at most, measured: the two lines of a roofline (S. Williams, A. Waterman, D. Patterson,
// "Roofline: an insightful visual performance model for multicore architectures", CACM 52, 2009).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optc {

struct MachinePeak {
  // Operations a second, of all threads: multiply-adds (two each) on the widest vectors.
  double flops = 0;            // in f32
  double double_flops = 0;     // in f64
  double byte_operations = 0;  // of 8-bit integers, summed in 32 bits, by `byte_unit`; 0: it has nothing for them
  std::string_view byte_unit;  // "AMX", "VNNI", "pairs of 16 bits"
  std::vector<std::pair<double, double>> bandwidth;  // bytes that are read again and again; bytes a second, ascending
  // For data of this size: caches make small ones faster. Between two measured sizes, of the smaller one.
  double bandwidth_of(double bytes) const;
};
// With so many threads at a time (from 1 on); takes about half a second.
MachinePeak measure_peak(int threads);

// The machine that a measurement is of: name and value, in the order in which they are told. Processor, cores,
// instruction set, clock in MHz, governor, memory, system, load of the last minute; what is not known is left out.
std::vector<std::pair<std::string, std::string>> machine_record();

}  // namespace optc
