#pragma once
// What this processor can do at most, measured: the two lines of a roofline (S. Williams, A. Waterman, D. Patterson,
// "Roofline: an insightful visual performance model for multicore architectures", CACM 52, 2009).

#include <string>
#include <utility>
#include <vector>

namespace optc {

struct MachinePeak {
  double flops = 0;  // operations a second in f32: multiply-adds (two each) on the widest vectors, of all threads
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
