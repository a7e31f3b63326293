#include <onnx/onnx_pb.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "importer/internal_tensor.h"

namespace optc {
namespace {

// Mapped bytes that are not aligned to their element are copied up to this size; larger ones stay mapped as they are.
constexpr size_t kCopyMisaligned = size_t{1} << 20;
// A sparse tensor is made dense up to this size.
constexpr int64_t kMaxDenseBytes = int64_t{1} << 31;

std::string shape_text(const std::vector<int64_t> &dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

Result<int64_t> count_of(const std::vector<int64_t> &dims, const std::string &what, Diagnostics &diagnostics) {
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) return diagnostics.error(ErrorKind::kInvalid, what + ": negative dims " + shape_text(dims));
    zero |= d == 0;
  }
  int64_t count = 1;
  for (int64_t d : dims) {
    if (zero && d == 0) continue;
    if (__builtin_mul_overflow(count, d, &count) || count >= kDimOverflow)
      return diagnostics.error(ErrorKind::kInvalid, what + ": the product of dims " + shape_text(dims) + " overflows");
  }
  return zero ? 0 : count;
}

size_t alignment_of(ElementType type) {
  const int bits = is_complex(type) ? bit_width(type) / 2 : bit_width(type);
  return bits <= 8 ? 1 : static_cast<size_t>(bits / 8);
}

template <typename To, typename From>
void convert_field(const From &field, std::vector<uint8_t> &bytes) {
  for (int i = 0; i < field.size(); ++i) {
    const To value = static_cast<To>(field.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(To), &value, sizeof(To));
  }
}

class TensorReader {
 public:
  TensorReader(const onnx::TensorProto &tensor, const TensorSource &source, const std::string &what,
               Diagnostics &diagnostics)
      : t_(tensor), source_(source), what_(what), diagnostics_(diagnostics) {}

  Result<Constant> read() {
    dims_.assign(t_.dims().begin(), t_.dims().end());
    if (t_.data_type() == onnx::TensorProto::UNDEFINED) return invalid("no data type");
    type_ = element_type_of(t_.data_type());
    if (type_ == ElementType::kUndefined) {
      if (onnx::TensorProto::DataType_IsValid(t_.data_type()))
        return diagnostics_.error(
            ErrorKind::kUnsupported,
            what_ + ": element type " +
                onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(t_.data_type())));
      return invalid("unknown data type " + std::to_string(t_.data_type()));
    }
    if (t_.has_segment()) return invalid("segments are not part of a model's tensors");
    if (dims_.size() > 64) return invalid(std::to_string(dims_.size()) + " dims");
    OPTC_ASSIGN(count_, count_of(dims_, what_, diagnostics_));
    if (type_ == ElementType::kString) return read_strings();
    const std::optional<int64_t> bytes = storage_bytes(type_, count_);
    if (!bytes) return invalid("the size of dims " + shape_text(dims_) + " overflows");
    needed_ = static_cast<uint64_t>(*bytes);
    if (t_.data_location() == onnx::TensorProto::EXTERNAL) return read_external();
    if (t_.has_raw_data()) return read_raw();
    return read_typed();
  }

 private:
  Failure invalid(const std::string &text, std::string help = {}) {
    return diagnostics_.error(ErrorKind::kInvalid, what_ + ": " + text, {}, std::move(help));
  }

  std::string need() const {
    return "dims " + shape_text(dims_) + " of " + std::string(onnx_name(type_)) + " need " + std::to_string(needed_);
  }

  // Bytes at `data` become the constant; `owner` keeps them alive.
  Result<Constant> wrap(const uint8_t *data, std::shared_ptr<const void> owner) {
    bool copy = needed_ == 0;
    if (type_ == ElementType::kBool)  // anything but 0 is true; C++ must see 1
      for (uint64_t i = 0; i < needed_ && !copy; ++i) copy = data[i] > 1;
    if (reinterpret_cast<uintptr_t>(data) % alignment_of(type_) != 0 && needed_ <= kCopyMisaligned) copy = true;
    if (!copy) return Constant::view(type_, dims_, data, needed_, std::move(owner));
    std::vector<uint8_t> bytes;
    if (needed_ > 0) bytes.assign(data, data + needed_);
    if (type_ == ElementType::kBool)
      for (uint8_t &b : bytes) b = b != 0;
    return Constant::owned(type_, dims_, std::move(bytes));
  }

  Result<Constant> read_strings() {
    if (t_.data_location() == onnx::TensorProto::EXTERNAL || t_.has_raw_data())
      return invalid("strings cannot be raw or external data");
    if (t_.string_data_size() != count_)
      return invalid(std::to_string(t_.string_data_size()) + " strings but dims " + shape_text(dims_) + " need " +
                     std::to_string(count_));
    return Constant::strings(dims_, {t_.string_data().begin(), t_.string_data().end()});
  }

  Result<Constant> read_raw() {
    const uint8_t *data = reinterpret_cast<const uint8_t *>(t_.raw_data().data());
    uint64_t size = t_.raw_data().size();
    std::shared_ptr<const void> owner;
    if (source_.scan) {
      uint32_t index = 0;
      for (size_t i = 0; i < 4 && i < t_.raw_data().size(); ++i)
        index |= static_cast<uint32_t>(static_cast<uint8_t>(t_.raw_data()[i])) << (8 * i);
      if (t_.raw_data().size() != 4 || index >= source_.scan->raw.size())
        return invalid("raw_data that the scan did not see");
      data = source_.data + source_.scan->raw[index].offset;
      size = source_.scan->raw[index].length;
      owner = source_.owner;
    }
    if (size != needed_) return invalid(std::to_string(size) + " bytes of raw_data but " + need());
    if (!owner) {
      std::vector<uint8_t> bytes(data, data + size);
      return Constant::owned(type_, dims_, std::move(bytes));
    }
    return wrap(data, std::move(owner));
  }

  Result<Constant> read_external() {
    std::string location;
    uint64_t offset = 0;
    std::optional<uint64_t> length;
    for (const auto &entry : t_.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset" || entry.key() == "length") {
        const std::string &text = entry.value();
        uint64_t value = 0;
        bool good = !text.empty() && text.size() <= 19;
        for (char c : text) {
          good = good && c >= '0' && c <= '9';
          if (good) value = value * 10 + static_cast<uint64_t>(c - '0');
        }
        if (!good) return invalid("external data " + entry.key() + " '" + text.substr(0, 40) + "' is not a number");
        if (entry.key() == "offset")
          offset = value;
        else
          length = value;
      }
    }
    if (location.empty()) return invalid("empty external data path");
    if (!source_.external)
      return diagnostics_.error(ErrorKind::kIo,
                                what_ + ": external data '" + location + "' of a model that has no folder");
    OPTC_ASSIGN(std::shared_ptr<const MappedFile> file, source_.external->open(location, what_, diagnostics_));
    if (length && *length != needed_) return invalid(std::to_string(*length) + " bytes of external data but " + need());
    if (offset > file->size() || needed_ > file->size() - offset)
      return invalid("external data '" + location + "' has " + std::to_string(file->size()) + " bytes; offset " +
                         std::to_string(offset) + " and " + need() + " run past its end",
                     "the file may be cut short or belong to another model");
    const uint8_t *data = file->data() + offset;
    return wrap(data, file);
  }

  Failure wrong_count(int got, uint64_t want) {
    return invalid(std::to_string(got) + " elements in its typed data but dims " + shape_text(dims_) + " of " +
                   std::string(onnx_name(type_)) + " need " + std::to_string(want));
  }

  Result<Constant> read_typed() {
    std::vector<uint8_t> bytes;
    const auto count = static_cast<uint64_t>(count_);
    switch (type_) {
      case ElementType::kFloat32:
      case ElementType::kComplex64: {
        const uint64_t want = type_ == ElementType::kComplex64 ? count * 2 : count;
        if (static_cast<uint64_t>(t_.float_data_size()) != want) return wrong_count(t_.float_data_size(), want);
        bytes.resize(needed_);
        convert_field<float>(t_.float_data(), bytes);
        break;
      }
      case ElementType::kFloat64:
      case ElementType::kComplex128: {
        const uint64_t want = type_ == ElementType::kComplex128 ? count * 2 : count;
        if (static_cast<uint64_t>(t_.double_data_size()) != want) return wrong_count(t_.double_data_size(), want);
        bytes.resize(needed_);
        convert_field<double>(t_.double_data(), bytes);
        break;
      }
      case ElementType::kInt64:
        if (static_cast<uint64_t>(t_.int64_data_size()) != count) return wrong_count(t_.int64_data_size(), count);
        bytes.resize(needed_);
        convert_field<int64_t>(t_.int64_data(), bytes);
        break;
      case ElementType::kUInt32:
      case ElementType::kUInt64:
        if (static_cast<uint64_t>(t_.uint64_data_size()) != count) return wrong_count(t_.uint64_data_size(), count);
        bytes.resize(needed_);
        if (type_ == ElementType::kUInt32)
          convert_field<uint32_t>(t_.uint64_data(), bytes);
        else
          convert_field<uint64_t>(t_.uint64_data(), bytes);
        break;
      default: {  // int32_data; sub-byte types are packed there as in raw_data, one byte an entry
        const int bits = bit_width(type_);
        const uint64_t want = bits < 8 ? needed_ : count;
        if (static_cast<uint64_t>(t_.int32_data_size()) != want) return wrong_count(t_.int32_data_size(), want);
        bytes.resize(needed_);
        if (bits == 32)
          convert_field<int32_t>(t_.int32_data(), bytes);
        else if (bits == 16)
          convert_field<uint16_t>(t_.int32_data(), bytes);
        else
          convert_field<uint8_t>(t_.int32_data(), bytes);
        if (type_ == ElementType::kBool)
          for (int i = 0; i < t_.int32_data_size(); ++i) bytes[static_cast<size_t>(i)] = t_.int32_data(i) != 0;
      }
    }
    return Constant::owned(type_, dims_, std::move(bytes));
  }

  const onnx::TensorProto &t_;
  const TensorSource &source_;
  const std::string &what_;
  Diagnostics &diagnostics_;
  std::vector<int64_t> dims_;
  ElementType type_ = ElementType::kUndefined;
  int64_t count_ = 0;
  uint64_t needed_ = 0;
};

}  // namespace

ElementType element_type_of(int32_t data_type) {
  return data_type >= 1 && data_type <= static_cast<int32_t>(ElementType::kInt2) ? static_cast<ElementType>(data_type)
                                                                                 : ElementType::kUndefined;
}

Result<std::shared_ptr<const MappedFile>> ExternalFiles::open(const std::string &location, const std::string &tensor,
                                                              Diagnostics &diagnostics) {
  namespace fs = std::filesystem;
  auto leaves = [&] {
    return diagnostics.error(ErrorKind::kInvalid,
                             tensor + ": external data '" + location + "' leaves the model's folder", {},
                             "external data must lie beside the model or below it, under a relative path");
  };
  if (location.find('\0') != std::string::npos) return leaves();
  const fs::path relative(location);
  if (relative.is_absolute() || location.find('\\') != std::string::npos) return leaves();
  for (const fs::path &part : relative)
    if (part == "..") return leaves();
  std::error_code error;
  const fs::path root = fs::canonical(folder_.empty() ? fs::path(".") : fs::path(folder_), error);
  if (error)
    return diagnostics.error(ErrorKind::kIo, "the folder '" + folder_ + "' cannot be read: " + error.message());
  const fs::path full = fs::canonical(root / relative, error);
  if (error)
    return diagnostics.error(ErrorKind::kIo,
                             tensor + ": external data '" + location + "' cannot be read: " + error.message(), {},
                             "put the file beside the model");
  auto r = root.begin();
  auto f = full.begin();
  for (; r != root.end() && f != full.end() && *r == *f; ++r) ++f;
  if (r != root.end() || f == full.end()) return leaves();
  auto &entry = files_[full.string()];
  if (!entry) {
    if (!fs::is_regular_file(full, error))
      return diagnostics.error(ErrorKind::kInvalid,
                               tensor + ": external data '" + location + "' is not a regular file");
    OPTC_ASSIGN(entry, MappedFile::open(full.string(), diagnostics));
  }
  return entry;
}

Result<Constant> convert_tensor(const onnx::TensorProto &tensor, const TensorSource &source, const std::string &what,
                                Diagnostics &diagnostics) {
  return TensorReader(tensor, source, what, diagnostics).read();
}

Result<Constant> convert_sparse(const onnx::SparseTensorProto &tensor, const TensorSource &source,
                                const std::string &what, Diagnostics &diagnostics) {
  auto invalid = [&](const std::string &text) { return diagnostics.error(ErrorKind::kInvalid, what + ": " + text); };
  const std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
  if (dims.empty() || dims.size() > 64) return invalid("a sparse tensor needs 1 to 64 dims");
  OPTC_ASSIGN(const int64_t count, count_of(dims, what, diagnostics));
  OPTC_ASSIGN(const Constant values, convert_tensor(tensor.values(), source, what + " (values)", diagnostics));
  if (values.rank() != 1) return invalid("the values of a sparse tensor have one dim");
  if (values.type() == ElementType::kString || bit_width(values.type()) < 8)
    return diagnostics.error(ErrorKind::kUnsupported,
                             what + ": a sparse tensor of " + std::string(onnx_name(values.type())));
  const int64_t entries = values.count();
  const std::optional<int64_t> bytes = storage_bytes(values.type(), count);
  if (!bytes || *bytes > kMaxDenseBytes)
    return diagnostics.error(ErrorKind::kUnsupported,
                             what + ": a sparse tensor of dims " + shape_text(dims) + " is too large to be made dense");
  std::vector<uint8_t> dense(static_cast<size_t>(*bytes));
  if (entries > 0) {
    OPTC_ASSIGN(const Constant indices, convert_tensor(tensor.indices(), source, what + " (indices)", diagnostics));
    if (indices.type() != ElementType::kInt64) return invalid("the indices of a sparse tensor are int64");
    const bool linear = indices.rank() == 1;
    const auto rank = static_cast<int64_t>(dims.size());
    if (!(linear && indices.dims()[0] == entries) &&
        !(indices.rank() == 2 && indices.dims()[0] == entries && indices.dims()[1] == rank))
      return invalid("indices of dims " + shape_text(indices.dims()) + " do not fit " + std::to_string(entries) +
                     " values");
    const size_t width = static_cast<size_t>(bit_width(values.type()) / 8);
    for (int64_t i = 0; i < entries; ++i) {
      int64_t at = 0;
      if (linear) {
        at = indices.as_int64(i);
        if (at < 0 || at >= count) return invalid("index " + std::to_string(at) + " is out of range");
      } else {
        for (int64_t axis = 0; axis < rank; ++axis) {
          const int64_t index = indices.as_int64(i * rank + axis);
          const int64_t extent = dims[static_cast<size_t>(axis)];
          if (index < 0 || index >= extent)
            return invalid("index " + std::to_string(index) + " is out of range for dim " + std::to_string(extent));
          at = at * extent + index;
        }
      }
      std::memcpy(dense.data() + static_cast<size_t>(at) * width, values.data() + static_cast<size_t>(i) * width,
                  width);
    }
  }
  return Constant::owned(values.type(), dims, std::move(dense));
}

}  // namespace optc
