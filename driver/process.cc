#include "driver/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern char **environ;

namespace optc {

Result<ProcessResult> run_process(const std::vector<std::string> &arguments, Diagnostics &diagnostics) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return diagnostics.error(ErrorKind::kIo, "cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char *> argv;
  for (const std::string &argument : arguments) argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  // The signals that this process may have blocked for itself.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int failed = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return diagnostics.error(ErrorKind::kIo, "cannot run " + arguments[0] + ": " + strerror(failed));
  }
  ProcessResult result;
  char buffer[65536];
  for (;;) {
    const ssize_t size = read(ends[0], buffer, sizeof(buffer));
    if (size > 0) {
      result.output.append(buffer, size);
    } else if (size == 0 || errno != EINTR) {
      break;
    }
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

bool on_path(const std::string &program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char *path = std::getenv("PATH");
  if (!path) return false;
  std::string rest = path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder = rest.substr(0, colon);
    if (!folder.empty() && access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    if (colon == std::string::npos) break;
    rest.erase(0, colon + 1);
  }
  return false;
}

std::string last_lines(const std::string &text, int count) {
  size_t at = text.size();
  while (at > 0 && text[at - 1] == '\n') --at;
  const size_t end = at;
  while (at > 0 && count > 0) {
    --at;
    if (text[at] == '\n' && --count == 0) return text.substr(at + 1, end - at - 1);
  }
  return text.substr(0, end);
}

}  // namespace optc
