#pragma once
// TensorProto, SparseTensorProto and external data -> Constant. Seen by importer/ and convert/ only.

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "importer/wire.h"
#include "ir/constant.h"
#include "support/diagnostics.h"
#include "support/file.h"
#include "support/result.h"

namespace onnx {
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace optc {

// The files of external data beside a model, each mapped once. A path must stay inside the folder, also through
// symbolic links.
class ExternalFiles {
 public:
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}
  Result<std::shared_ptr<const MappedFile>> open(const std::string &location, const std::string &tensor,
                                                 Diagnostics &diagnostics);
  const std::map<std::string, std::shared_ptr<const MappedFile>> &files() const { return files_; }

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;  // by canonical path
};

// Where raw_data of parsed tensors lies.
struct TensorSource {
  const WireScan *scan = nullptr;  // null: raw_data holds the bytes themselves (bodies of ONNX's own functions)
  const uint8_t *data = nullptr;   // what was scanned
  std::shared_ptr<const void> owner;
  ExternalFiles *external = nullptr;
};

// The element type of a TensorProto.DataType; kUndefined when it is none that optc knows.
ElementType element_type_of(int32_t data_type);

// `what` names the tensor in errors: "initializer 'w'".
Result<Constant> convert_tensor(const onnx::TensorProto &tensor, const TensorSource &source, const std::string &what,
                                Diagnostics &diagnostics);
Result<Constant> convert_sparse(const onnx::SparseTensorProto &tensor, const TensorSource &source,
                                const std::string &what, Diagnostics &diagnostics);

}  // namespace optc
