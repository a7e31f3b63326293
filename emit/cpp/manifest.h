#pragma once
// manifest.json: what a bundle is, for tools and tests. `schema_version` counts changes that a reader could notice.

#include <string>

#include "emit/cpp/emit.h"
#include "emit/cpp/model_printer.h"

namespace optc {

std::string manifest_json(const Program &program, const ModelPrinter &model, const BundleOptions &options,
                          const std::string &name, const std::string &weights_hash);

}  // namespace optc
