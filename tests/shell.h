#pragma once
// Commands that a test runs by the shell.

#include <cstdio>
#include <string>

namespace optc::testing {

// What the command says on both streams; `status` as pclose gives it.
inline std::string run_command(const std::string &command, int *status) {
  std::string out;
  FILE *pipe = popen((command + " 2>&1").c_str(), "r");
  *status = -1;
  if (!pipe) return out;
  char line[512];
  while (fgets(line, sizeof line, pipe)) out += line;
  *status = pclose(pipe);
  return out;
}

}  // namespace optc::testing
