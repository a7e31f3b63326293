#pragma once
// What bundle.cc, kernel_files.cc and weight_files.cc share: the writer of one bundle.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "emit/cpp/abi_files.h"
#include "emit/cpp/emit.h"
#include "emit/cpp/model_printer.h"
#include "emit/cpp/names.h"

namespace optc {

class BundleWriter {
 public:
  BundleWriter(const Program &program, const BundleOptions &options, StagedDirectory &directory,
               Diagnostics &diagnostics);
  Result<BundleReport> write();

 private:
  Status put(const std::string &path, const std::string &text);
  // kernel_files.cc: into src/PREFIXkernels*, in the namespace NAME_code.
  Status write_kernels(const ModelPrinter &model, const std::string &name, const std::string &prefix);
  // weight_files.cc: NAME.weights, or what links it into the library; `places_` learns how the code finds it.
  Status write_weights();
  Status embed_manifest(const std::string &manifest);

  // Bytes for a sink, in pieces; false: it took no more. What it begins with may be known afterwards only.
  using Sink = StagedDirectory::Sink;
  using Give = StagedDirectory::Give;
  using Head = StagedDirectory::Head;
  bool each_part(const Sink &sink) const;
  // Links what `give` gives into the library as NAME_WHAT_data: an array where it is short, else a file beside the
  // source that the assembler takes as it is.
  Status embed(const std::string &what, uint64_t bytes, const Give &give, const Head &head);
  Status write_data(const std::string &path, const Give &give, const Head &head);
  // The schedule of a variant, printed; `others` learns of it.
  Status print_variant(const BundleVariant &variant, ModelPrinter &model, std::vector<ModelEntry> &others);
  Status library_includes(const std::set<std::string> &functions, ModelSources &sources);
  Status runtime_files();

  const Program &program_;
  const BundleOptions &options_;
  StagedDirectory &directory_;
  Diagnostics &diagnostics_;
  std::string name_, hash_text_;
  WeightPool weights_;
  uint64_t weights_bytes_ = 0, cuda_weights_ = 0;  // of the whole file; where the GPU's part of it begins
  ModelPlaces places_;
  AbiFacts facts_;
  std::vector<std::unique_ptr<ModelPrinter>> printers_;  // of the entries besides the general one
  NameScope titles_;                                     // of the variants
  std::set<std::string> wanted_;
  size_t files_ = 0;
};

}  // namespace optc
