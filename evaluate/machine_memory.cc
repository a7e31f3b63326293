// Memory and work of a running Program: where there is not enough, or too much, and what is said then.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "evaluate/lanes.h"
#include "evaluate/machine.h"

namespace optc::evaluate_detail {

namespace {

// "4.0 PiB"; a size that no int64 holds is told as well.
std::string bytes_text(double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  char text[64];
  std::snprintf(text, sizeof text, bytes < 1e4 ? "%.1f %s" : "%.2e %s", bytes, units[unit]);
  return text;
}

}  // namespace

Failure Machine::no_memory(const Buffer &buffer, const std::vector<int64_t> &dims, bool forbidden) {
  double bytes = static_cast<double>(cell_bytes(buffer.element()));
  std::string shape;
  for (const int64_t d : dims) {
    bytes *= static_cast<double>(d);
    shape += (shape.empty() ? "" : ",") + std::to_string(d);
  }
  return diagnostics_.error(
      ErrorKind::kIo,
      (kernel_ ? "kernel '" + kernel_->name + "': '" : "'") + buffer.name + "' needs " + bytes_text(bytes) + " for " +
          std::string(to_string(buffer.element())) + "[" + shape + "], " +
          (forbidden ? "more than the " + bytes_text(static_cast<double>(options_.max_bytes)) + " that are allowed"
                     : "and there is not as much memory"),
      kernel_ ? place(*kernel_) : std::string(), "smaller inputs need less: --dim NAME=N sets a dimension");
}

bool Machine::spend(double work) {
  constexpr double kMost = 9e18;  // of int64
  const double before = work_;
  work_ = std::min(work_ + std::ceil(work), kMost);
  if (options_.work)
    *options_.work = static_cast<int64_t>(std::min(static_cast<double>(*options_.work) + (work_ - before), kMost));
  if (options_.max_work == 0 || work_ <= static_cast<double>(options_.max_work)) return true;
  char text[96];
  std::snprintf(text, sizeof text, "with it the run takes %.1e operations, more than the %.1e that are allowed", work_,
                static_cast<double>(options_.max_work));
  said_ =
      diagnostics_
          .error(ErrorKind::kIo, (kernel_ ? "kernel '" + kernel_->name + "': " : "") + text,
                 kernel_ ? place(*kernel_) : std::string(), "smaller inputs need less: --dim NAME=N sets a dimension")
          .kind;
  return false;
}

Result<Tensor> Machine::allocate(const Buffer &buffer, std::vector<int64_t> dims) {
  int64_t bytes = cell_bytes(buffer.element());
  bool fits = true;
  for (const int64_t d : dims) fits = fits && !__builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes);
  if (!fits || bytes > options_.max_bytes) {
    if (std::find(dims.begin(), dims.end(), 0) == dims.end()) return no_memory(buffer, dims, true);
  }
  Tensor tensor = make_tensor(buffer.element(), std::move(dims));
  if (!tensor.valid()) return no_memory(buffer, tensor.dims, false);
  return tensor;
}

}  // namespace optc::evaluate_detail
