// The Python module of a bundle.
#include <fmt/format.h>

#include "emit/cpp/abi_files.h"
#include "emit/cpp/text_lines.h"

namespace optc {

std::string python_module(const Program &p, const AbiFacts &f) {
  std::string doc;
  for (const std::string &line : signature(p)) {
    std::string safe;
    for (char c : line) safe += c == '"' || c == '\\' ? '\'' : c;
    doc += wrap_words(safe, "    ", "      ") + "\n";
  }
  std::string out = fmt::format(
      R"PY("""{0}, compiled by optc: the model as a Python callable on arrays of NumPy and tensors of torch, cupy ...

{1}
    from {0} import Model
    outputs = Model()(name=array, ...)   # a dict of arrays; on a GPU: Model(device="cuda")
"""
import ctypes
import os

import numpy as np

)PY",
      f.name, doc);
  // The rest is the same for all models: bundle_module.py.
  out +=
#include "bundle_module.inc"
      ;
  out += fmt::format("\nNAME = \"{}\"\n", f.name);
  return out;
}

}  // namespace optc
