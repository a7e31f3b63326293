#pragma once
// Diagnostics: the one place where errors, warnings and notes are said. Stages append; the command line prints them
// (`error[kind]: ...`, `--> node`, note, help) or a host reads them. Nothing here prints.

#include <string>
#include <vector>

#include "support/result.h"

namespace optc {

enum class Severity : uint8_t { kWarning, kError };

struct Diagnostic {
  Severity severity = Severity::kError;
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;              // one sentence, lower case, no full stop
  std::string file;                 // the model file; empty: the file that the Diagnostics was made for
  std::string node;                 // "node 'name' (Op #index)" or empty
  std::vector<std::string> places;  // further places: `--> node ...` lines (all unsupported nodes are one diagnostic)
  std::vector<std::string> notes;
  std::string help;
};

class Diagnostics {
 public:
  Diagnostics() = default;
  explicit Diagnostics(std::string file) : file_(std::move(file)) {}

  // Adds an error and returns the failure that the caller returns: `return diagnostics.error(kInvalid, "...")`.
  Failure error(ErrorKind kind, std::string message, std::string node = {}, std::string help = {});
  Failure add(Diagnostic diagnostic);
  void warning(std::string message, std::string node = {});

  const std::vector<Diagnostic> &all() const { return all_; }
  bool has_error() const;
  const std::string &file() const { return file_; }
  void set_file(std::string file) { file_ = std::move(file); }

 private:
  std::string file_;
  std::vector<Diagnostic> all_;
};

const char *to_string(ErrorKind kind);   // "usage", "io", "invalid", ...
int exit_code(ErrorKind kind);           // the contract of the command line: 1, 2, 3, 4, 101
std::string format(const Diagnostic &);  // the text of one diagnostic, without colours, ends with a newline

}  // namespace optc
