#pragma once
// What the two conformance programs say of a model that failed.

#include <string>

#include "support/diagnostics.h"

namespace optc {

// The errors of `diagnostics` with their places, without the characters that the answers' protocol uses.
inline std::string one_line(const Diagnostics &diagnostics) {
  std::string text;
  for (const Diagnostic &d : diagnostics.all()) {
    if (d.severity != Severity::kError) continue;
    text += (text.empty() ? "" : "; ") + d.message;
    if (!d.node.empty()) text += " [" + d.node + "]";
    for (const std::string &p : d.places) text += " [" + p + "]";
  }
  for (char &c : text)
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  return text;
}

}  // namespace optc
