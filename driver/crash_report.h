#pragma once
// What a process says when it dies of a signal: of code that is loaded into it, a bundle's, nobody knows what it does.

#include <string>

namespace optc {

// While it lives, a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) writes the last text to stderr and ends the
// process with exit code 101; an empty text leaves the signal to whoever had it before. One at a time in a process,
// since signals belong to the process.
class CrashReport {
 public:
  CrashReport();
  ~CrashReport();
  CrashReport(const CrashReport &) = delete;
  CrashReport &operator=(const CrashReport &) = delete;
  void set(const std::string &text);
};

}  // namespace optc
