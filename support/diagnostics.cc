#include "support/diagnostics.h"

#include <utility>

namespace optc {

Failure Diagnostics::error(ErrorKind kind, std::string message, std::string node, std::string help) {
  Diagnostic d;
  d.kind = kind;
  d.message = std::move(message);
  d.node = std::move(node);
  d.help = std::move(help);
  return add(std::move(d));
}

Failure Diagnostics::add(Diagnostic diagnostic) {
  if (diagnostic.file.empty()) diagnostic.file = file_;
  const ErrorKind kind = diagnostic.kind;
  all_.push_back(std::move(diagnostic));
  return Failure{kind};
}

void Diagnostics::warning(std::string message, std::string node) {
  Diagnostic d;
  d.severity = Severity::kWarning;
  d.message = std::move(message);
  d.node = std::move(node);
  d.file = file_;
  all_.push_back(std::move(d));
}

bool Diagnostics::has_error() const {
  for (const Diagnostic &d : all_)
    if (d.severity == Severity::kError) return true;
  return false;
}

const char *to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kInvalid:
      return "invalid";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kMismatch:
      return "mismatch";
    case ErrorKind::kFault:
      return "fault";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kIo:
      return 2;
    case ErrorKind::kInvalid:
      return 3;
    case ErrorKind::kUnsupported:
      return 4;
    case ErrorKind::kMismatch:
    case ErrorKind::kFault:
      return 1;
    case ErrorKind::kInternal:
      return 101;
  }
  return 101;
}

std::string format(const Diagnostic &d) {
  std::string text = d.severity == Severity::kError ? std::string("error[") + to_string(d.kind) + "]: " : "warning: ";
  // The file is said once: many messages name it themselves.
  if (!d.file.empty() && d.message.find(d.file) == std::string::npos) text += d.file + ": ";
  if (!d.node.empty()) text += d.node + ": ";
  text += d.message + "\n";
  for (const std::string &place : d.places) text += "  --> " + place + "\n";
  for (const std::string &note : d.notes) text += "  note: " + note + "\n";
  if (!d.help.empty()) text += "  help: " + d.help + "\n";
  return text;
}

}  // namespace optc
