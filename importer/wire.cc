#include "importer/wire.h"

namespace optc {
namespace {

// The messages that lie on a way from ModelProto to TensorProto.raw_data. Everything else is copied as it is.
enum class Message : uint8_t { kModel, kGraph, kNode, kAttribute, kTensor, kSparse, kFunction };

constexpr int kMaxDepth = 100;  // as protobuf's own limit on nested messages

const char *name_of(Message message) {
  switch (message) {
    case Message::kModel:
      return "ModelProto";
    case Message::kGraph:
      return "GraphProto";
    case Message::kNode:
      return "NodeProto";
    case Message::kAttribute:
      return "AttributeProto";
    case Message::kTensor:
      return "TensorProto";
    case Message::kSparse:
      return "SparseTensorProto";
    case Message::kFunction:
      return "FunctionProto";
  }
  return "";
}

struct Step {
  enum Kind : uint8_t { kCopy, kDescend, kRaw, kTraining } kind = kCopy;
  Message message = Message::kModel;
};

Step step_of(Message message, uint32_t field) {
  auto into = [](Message m) { return Step{Step::kDescend, m}; };
  switch (message) {
    case Message::kModel:
      if (field == 7) return into(Message::kGraph);
      if (field == 25) return into(Message::kFunction);
      if (field == 20) return {Step::kTraining, message};
      break;
    case Message::kGraph:
      if (field == 1) return into(Message::kNode);
      if (field == 5) return into(Message::kTensor);
      if (field == 15) return into(Message::kSparse);
      break;
    case Message::kNode:
      if (field == 5) return into(Message::kAttribute);
      break;
    case Message::kAttribute:
      if (field == 5 || field == 10) return into(Message::kTensor);
      if (field == 6 || field == 11) return into(Message::kGraph);
      if (field == 22 || field == 23) return into(Message::kSparse);
      break;
    case Message::kTensor:
      if (field == 9) return {Step::kRaw, message};
      break;
    case Message::kSparse:
      if (field == 1 || field == 2) return into(Message::kTensor);
      break;
    case Message::kFunction:
      if (field == 7) return into(Message::kNode);
      if (field == 11) return into(Message::kAttribute);
      break;
  }
  return {};
}

class Scanner {
 public:
  Scanner(const uint8_t *data, Training training, Diagnostics &diagnostics)
      : data_(data), training_(training), diagnostics_(diagnostics) {}

  Status message(Message kind, uint64_t begin, uint64_t end, int depth) {
    if (depth > kMaxDepth) return bad("messages nest more than 100 deep", kind, begin);
    uint64_t at = begin;
    while (at < end) {
      const uint64_t start = at;
      uint64_t key = 0;
      if (!varint(at, end, key) || key >> 32 != 0 || key >> 3 == 0) return bad("a malformed field key", kind, start);
      const auto field = static_cast<uint32_t>(key >> 3);
      uint64_t length = 0;
      switch (key & 7) {
        case 0: {
          uint64_t unused = 0;
          if (!varint(at, end, unused)) return bad("a malformed number", kind, start);
          break;
        }
        case 1:
          length = 8;
          break;
        case 5:
          length = 4;
          break;
        case 2:
          if (!varint(at, end, length)) return bad("a malformed length", kind, start);
          break;
        default:
          return bad("a field of an unknown wire type", kind, start);
      }
      if (length > end - at) return bad("a field that runs past the end of its message", kind, start);
      const Step step = (key & 7) == 2 ? step_of(kind, field) : Step{};
      switch (step.kind) {
        case Step::kTraining:
          if (training_ == Training::kDrop) break;
          [[fallthrough]];
        case Step::kCopy:
          out_.reduced.append(reinterpret_cast<const char *>(data_ + start), at + length - start);
          break;
        case Step::kRaw: {
          if (out_.raw.size() > UINT32_MAX) return bad("too many tensors", kind, start);
          const auto index = static_cast<uint32_t>(out_.raw.size());
          out_.raw.push_back({at, length});
          put_varint(key);
          out_.reduced.push_back(4);
          for (int i = 0; i < 4; ++i) out_.reduced.push_back(static_cast<char>(index >> (8 * i) & 0xFF));
          break;
        }
        case Step::kDescend: {
          // The reduced length is known only afterwards: room for a padded five-byte varint.
          put_varint(key);
          const size_t place = out_.reduced.size();
          out_.reduced.append(5, '\0');
          OPTC_TRY(message(step.message, at, at + length, depth + 1));
          const uint64_t reduced = out_.reduced.size() - place - 5;
          if (out_.reduced.size() > INT32_MAX)
            return diagnostics_.error(ErrorKind::kUnsupported, "the model has more than 2 GB besides raw tensor data",
                                      {}, "store the tensors as raw_data or as external data");
          for (int i = 0; i < 5; ++i)
            out_.reduced[place + i] = static_cast<char>((reduced >> (7 * i) & 0x7F) | (i < 4 ? 0x80 : 0));
          break;
        }
      }
      at += length;
    }
    return {};
  }

  WireScan take() { return std::move(out_); }

 private:
  bool varint(uint64_t &at, uint64_t end, uint64_t &value) const {
    value = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
      const uint8_t byte = data_[at++];
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.reduced.push_back(static_cast<char>(value | 0x80));
    out_.reduced.push_back(static_cast<char>(value));
  }

  Failure bad(const char *what, Message kind, uint64_t at) {
    return diagnostics_.error(ErrorKind::kInvalid,
                              std::string("the file is not a complete ONNX model: ") + what + " in " + name_of(kind) +
                                  " at byte " + std::to_string(at),
                              {}, "the file may be cut short, or not be an ONNX model; export or download it again");
  }

  const uint8_t *data_;
  Training training_;
  Diagnostics &diagnostics_;
  WireScan out_;
};

}  // namespace

Result<WireScan> scan_model(const uint8_t *data, size_t size, Diagnostics &diagnostics, Training training) {
  Scanner scanner(data, training, diagnostics);
  OPTC_TRY(scanner.message(Message::kModel, 0, size, 0));
  WireScan scan = scanner.take();
  if (scan.reduced.size() > INT32_MAX)
    return diagnostics.error(ErrorKind::kUnsupported, "the model has more than 2 GB besides raw tensor data", {},
                             "store the tensors as raw_data or as external data");
  return scan;
}

}  // namespace optc
