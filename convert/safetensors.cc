#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "convert/internal_edit.h"
#include "support/file.h"
#include "support/staging.h"

namespace optc {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own bound

struct Name {
  ElementType type;
  const char *text;
};
constexpr Name kTypes[] = {
    {ElementType::kFloat64, "F64"},        {ElementType::kFloat32, "F32"},
    {ElementType::kFloat16, "F16"},        {ElementType::kBFloat16, "BF16"},
    {ElementType::kInt64, "I64"},          {ElementType::kInt32, "I32"},
    {ElementType::kInt16, "I16"},          {ElementType::kInt8, "I8"},
    {ElementType::kUInt64, "U64"},         {ElementType::kUInt32, "U32"},
    {ElementType::kUInt16, "U16"},         {ElementType::kUInt8, "U8"},
    {ElementType::kBool, "BOOL"},          {ElementType::kFloat8E4M3FN, "F8_E4M3"},
    {ElementType::kFloat8E5M2, "F8_E5M2"},
};

const char *name_of(ElementType type) {
  for (const Name &name : kTypes)
    if (name.type == type) return name.text;
  return nullptr;
}

struct Entry {
  ElementType type = ElementType::kUndefined;
  std::vector<int64_t> dims;
  uint64_t begin = 0, end = 0;
};

// The header, every number of it checked against the file.
class Header {
 public:
  Header(const MappedFile &file, Diagnostics &diagnostics) : file_(file), diagnostics_(diagnostics) {}

  Result<std::map<std::string, Entry>> read() {
    uint64_t length = 0;
    if (file_.size() < 8) return bad("it is shorter than the length of its header");
    std::memcpy(&length, file_.data(), 8);
    if (length > kMaxHeader || length > file_.size() - 8)
      return bad("a header of " + std::to_string(length) + " bytes does not fit");
    const char *text = reinterpret_cast<const char *>(file_.data()) + 8;
    // Names are objects of numbers and lists, nothing deeper: what nests more is not parsed.
    int depth = 0;
    bool deep = false;
    std::map<std::string, int> seen;
    std::string twice;
    const nlohmann::json json = nlohmann::json::parse(
        text, text + length,
        [&](int, nlohmann::json::parse_event_t event, nlohmann::json &value) {
          using Event = nlohmann::json::parse_event_t;
          if (event == Event::object_start || event == Event::array_start) deep = deep || ++depth > 3;
          if (event == Event::object_end || event == Event::array_end) --depth;
          if (event == Event::key && depth == 1 && ++seen[value.get<std::string>()] == 2)
            twice = value.get<std::string>();
          return !deep;
        },
        false);
    if (deep || json.is_discarded() || !json.is_object()) return bad("its header is not the JSON of names");
    if (!twice.empty()) return bad("tensor '" + twice + "' stands in it twice");
    data_ = 8 + length;
    std::map<std::string, Entry> entries;
    for (const auto &[name, value] : json.items()) {
      if (name == "__metadata__") continue;
      Entry entry;
      if (!entry_of(value, entry))
        return bad("tensor '" + name + "': its entry is wrong or its bytes lie outside the file");
      entries.emplace(name, std::move(entry));
    }
    return entries;
  }

  const uint8_t *at(uint64_t offset) const { return file_.data() + data_ + offset; }

 private:
  Failure bad(const std::string &text) {
    return diagnostics_.error(ErrorKind::kUsage, file_.path() + " is not a file of safetensors: " + text);
  }

  bool entry_of(const nlohmann::json &value, Entry &entry) const {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets"))
      return false;
    const nlohmann::json &type = value["dtype"], &shape = value["shape"], &place = value["data_offsets"];
    if (!type.is_string() || !shape.is_array() || shape.size() > 64 || !place.is_array() || place.size() != 2)
      return false;
    for (const Name &name : kTypes)
      if (type.get<std::string>() == name.text) entry.type = name.type;
    if (!place[0].is_number_unsigned() || !place[1].is_number_unsigned()) return false;
    entry.begin = place[0].get<uint64_t>();
    entry.end = place[1].get<uint64_t>();
    if (entry.begin > entry.end || entry.end > file_.size() - data_) return false;
    int64_t count = 1;
    for (const nlohmann::json &d : shape) {
      if (!d.is_number_unsigned() || d.get<uint64_t>() > INT64_MAX) return false;
      entry.dims.push_back(d.get<int64_t>());
      if (__builtin_mul_overflow(count, entry.dims.back(), &count)) return false;
    }
    if (entry.type == ElementType::kUndefined) return true;  // of a type that no initializer has: refused by its name
    const std::optional<int64_t> bytes = storage_bytes(entry.type, count);
    return bytes && static_cast<uint64_t>(*bytes) == entry.end - entry.begin;
  }

  const MappedFile &file_;
  Diagnostics &diagnostics_;
  uint64_t data_ = 0;
};

std::string dims_text(const std::vector<int64_t> &dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : ",") + std::to_string(d);
  return "[" + text + "]";
}

}  // namespace

Status write_safetensors(ModelFile &model, const ConvertOptions &options, ConvertFacts &facts,
                         Diagnostics &diagnostics) {
  const std::string &path = options.weights_to;
  OPTC_TRY(check_not_read(model, path, options.force, diagnostics));
  std::vector<std::pair<std::string, Constant>> tensors;
  NameSet names;
  OPTC_TRY(for_each_tensor(model.proto, [&](onnx::TensorProto &tensor, const TensorPlace &place) -> Status {
    if (!place.initializer) return {};
    const auto refuse = [&](const std::string &text, const std::string &help = {}) {
      return diagnostics.error(ErrorKind::kUnsupported, "--weights-to: " + place.what + " " + text, {}, help);
    };
    if (tensor.data_type() == onnx::TensorProto::STRING) return refuse("holds strings, which safetensors do not");
    OPTC_ASSIGN(Constant value, tensor_value(model, tensor, place.what, diagnostics));
    if (!name_of(value.type()))
      return refuse("is of " + std::string(onnx_name(value.type())) + ", which safetensors do not hold");
    if (tensor.name() == "__metadata__" || !names.insert(tensor.name()).second)
      return refuse("has a name that is taken", "--rename gives it another");
    tensors.emplace_back(tensor.name(), std::move(value));
    return {};
  }));
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "onnx"}};
  uint64_t at = 0;
  for (const auto &[name, value] : tensors) {
    header[name] = {
        {"dtype", name_of(value.type())}, {"shape", value.dims()}, {"data_offsets", {at, at + value.size()}}};
    at += value.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const std::exception &) {
    return diagnostics.error(ErrorKind::kUnsupported, "--weights-to: the name of an initializer is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  OPTC_ASSIGN(const auto file, StagedFile::create(path, diagnostics));
  file->write(&length, 8);
  file->write(text.data(), text.size());
  for (const auto &[name, value] : tensors) file->write(value.data(), value.size());
  OPTC_TRY(file->commit(diagnostics));
  facts.files.emplace_back(path, static_cast<int64_t>(8 + length + at));
  return {};
}

Status read_safetensors(ModelFile &model, const std::string &path, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path, diagnostics));
  Header header(*file, diagnostics);
  OPTC_ASSIGN(auto entries, header.read());
  std::error_code ignored;
  model.read_files.insert(std::filesystem::canonical(path, ignored).string());
  size_t taken = 0;
  NameSet found;
  OPTC_TRY(for_each_tensor(model.proto, [&](onnx::TensorProto &tensor, const TensorPlace &place) -> Status {
    const auto it = place.initializer ? entries.find(tensor.name()) : entries.end();
    if (it == entries.end()) return {};
    const Entry &entry = it->second;
    const std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
    const auto ours = static_cast<ElementType>(tensor.data_type());
    if (ours != entry.type || dims != entry.dims)
      return diagnostics.error(ErrorKind::kUsage,
                               "--weights-from " + path + ": '" + tensor.name() + "' is " +
                                   (name_of(entry.type) ? std::string(onnx_name(entry.type)) : "of an unknown type") +
                                   dims_text(entry.dims) + " there, " + std::string(onnx_name(ours)) + dims_text(dims) +
                                   " in the model");
    set_weight(model, tensor,
               Constant::view(entry.type, entry.dims, header.at(entry.begin), entry.end - entry.begin, file));
    found.insert(tensor.name());
    ++taken;
    return {};
  }));
  std::vector<std::string> rest;
  for (const auto &[name, unused] : entries)
    if (!found.count(name)) rest.push_back(name);
  if (!rest.empty())
    return diagnostics.error(
        ErrorKind::kUsage,
        "--weights-from " + path + ": the model has no initializer '" + rest[0] + "'" +
            (rest.size() > 1 ? ", nor " + std::to_string(rest.size() - 1) + " others of the file" : ""));
  if (taken == 0) return diagnostics.error(ErrorKind::kUsage, "--weights-from " + path + ": the file has no tensors");
  return {};
}

}  // namespace optc
