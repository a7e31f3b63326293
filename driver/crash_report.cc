#include "driver/crash_report.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace optc {
namespace {

constexpr int kExitCode = 101;
constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

// A handler of signals takes no arguments and must not allocate: it finds the text here.
struct Shared {
  std::array<char, 4096> text;
  std::atomic<size_t> size = 0;
  std::array<struct sigaction, kSignals.size()> before;
};
Shared &shared() {
  static Shared one;
  return one;
}

void on_crash(int number) {
  Shared &s = shared();
  const size_t size = s.size;
  if (size == 0) {  // the signal comes again where it came from
    signal(number, SIG_DFL);
    return;
  }
  size_t done = 0;
  while (done < size) {
    const ssize_t written = write(STDERR_FILENO, s.text.data() + done, size - done);
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  _exit(kExitCode);
}

}  // namespace

CrashReport::CrashReport() {
  Shared &s = shared();
  s.size = 0;
  struct sigaction action = {};
  action.sa_handler = on_crash;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &s.before[i]);
}

CrashReport::~CrashReport() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &shared().before[i], nullptr);
}

void CrashReport::set(const std::string &text) {
  Shared &s = shared();
  s.size = 0;
  const size_t size = std::min(text.size(), s.text.size());
  std::memcpy(s.text.data(), text.data(), size);
  s.size = size;
}

}  // namespace optc
