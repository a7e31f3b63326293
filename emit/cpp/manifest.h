#pragma once
// manifest.json: what a bundle is, for tools and tests. `schema_version` counts changes that a reader could notice.

#include <string>
#include <vector>

#include "emit/cpp/emit.h"
#include "emit/cpp/model_printer.h"

namespace optc {

std::string json_string(const std::string &text);  // with its quotes

struct WeightsFacts {
  uint64_t bytes = 0;  // of the file, header included
  std::string hash;    // XXH3-128 of what follows the header
};
struct VariantFacts {
  std::string sizes;  // "N=1,S=128"
  const Program *program = nullptr;
  const ModelPrinter *printer = nullptr;
};

std::string manifest_json(const Program &program, const ModelPrinter &model, const BundleOptions &options,
                          const std::string &name, const WeightsFacts &weights,
                          const std::vector<VariantFacts> &variants);

}  // namespace optc
