// mutate_models COUNT SEED MODEL...: imports COUNT damaged copies of the models (bytes flipped, cut, repeated, lengths
// and varints changed) and optimizes those that are still taken. Each must end within ten seconds in a Graph or in an
// error that was said. Prints what came out. The weights of the models must lie inside the files.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "importer/importer.h"
#include "optimizer/optimize.h"
#include "support/file.h"
#include "support/staging.h"

namespace {

constexpr double kSlow = 10;  // seconds

using Random = std::mt19937_64;

size_t below(Random &random, size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); }

// One damage. Models are mostly weights: half of the places are taken from the part that has the structure, told by its
// text.
void damage(std::string &bytes, Random &random, const std::vector<size_t> &places) {
  if (bytes.empty()) return;
  const size_t at =
      !places.empty() && random() % 4 != 0 ? places[below(random, places.size())] : below(random, bytes.size());
  if (at >= bytes.size()) return;
  const size_t length = 1 + below(random, 16);
  switch (random() % 8) {
    case 0:
      bytes[at] = static_cast<char>(random());
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      break;
    case 2:
      bytes.erase(at, length);
      break;
    case 3:
      bytes.insert(at, bytes.substr(below(random, bytes.size()), length));
      break;
    case 4:
      bytes.resize(at);
      break;
    case 5: {  // a number with many continuation bytes
      const std::string huge("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 1 + below(random, 9));
      bytes.replace(at, std::min(huge.size(), bytes.size() - at), huge);
      break;
    }
    case 6: {  // a piece of it somewhere else
      const size_t from = below(random, bytes.size());
      const std::string piece = bytes.substr(from, length * 8);
      bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
      break;
    }
    case 7:
      std::swap(bytes[at], bytes[below(random, bytes.size())]);
      break;
  }
}

// A field that is set, of some message of the model. index < 0: not repeated.
struct Place {
  google::protobuf::Message *message;
  const google::protobuf::FieldDescriptor *field;
  int index;
};

void collect(google::protobuf::Message &message, std::vector<Place> &places) {
  using Field = google::protobuf::FieldDescriptor;
  const auto *reflection = message.GetReflection();
  std::vector<const Field *> fields;
  reflection->ListFields(message, &fields);
  for (const Field *field : fields) {
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < std::min(count, 64); ++i) {
      places.push_back({&message, field, field->is_repeated() ? i : -1});
      if (field->cpp_type() != Field::CPPTYPE_MESSAGE) continue;
      collect(field->is_repeated() ? *reflection->MutableRepeatedMessage(&message, field, i)
                                   : *reflection->MutableMessage(&message, field),
              places);
    }
  }
}

int64_t odd_number(Random &random) {
  constexpr int64_t kOdd[] = {
      0, 1, -1, 2, 3, 7, 16, 64, 255, 4096, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t{1} << 40};
  return kOdd[below(random, std::size(kOdd))];
}

// One change of the parsed model that leaves a well-formed file.
void change(onnx::ModelProto &model, Random &random) {
  using Field = google::protobuf::FieldDescriptor;
  std::vector<Place> places;
  collect(model, places);
  if (places.empty()) return;
  const Place place = places[below(random, places.size())];
  const auto *r = place.message->GetReflection();
  const Field *field = place.field;
  google::protobuf::Message &message = *place.message;
  if (field->is_repeated() && random() % 3 == 0) {  // drop, exchange or double an element
    const int size = r->FieldSize(message, field), other = static_cast<int>(below(random, static_cast<size_t>(size)));
    if (random() % 2 == 0) {
      r->SwapElements(&message, field, place.index, other);
    } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE && random() % 2 == 0) {
      auto *copy = r->GetRepeatedMessage(message, field, place.index).New();
      copy->CopyFrom(r->GetRepeatedMessage(message, field, place.index));
      r->AddAllocatedMessage(&message, field, copy);
    } else {
      r->SwapElements(&message, field, place.index, size - 1);
      r->RemoveLast(&message, field);
    }
    return;
  }
  if (!field->is_repeated() && random() % 8 == 0) return r->ClearField(&message, field);
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT64: {
      const int64_t v = odd_number(random);
      return field->is_repeated() ? r->SetRepeatedInt64(&message, field, place.index, v)
                                  : r->SetInt64(&message, field, v);
    }
    case Field::CPPTYPE_INT32: {
      const auto v = static_cast<int32_t>(random() % 2 ? odd_number(random) : static_cast<int64_t>(below(random, 30)));
      return field->is_repeated() ? r->SetRepeatedInt32(&message, field, place.index, v)
                                  : r->SetInt32(&message, field, v);
    }
    case Field::CPPTYPE_FLOAT: {
      constexpr float kOdd[] = {0, -0.0f, 1, -1, 1e30f, -1e30f, 0.5f, INFINITY, NAN};
      const float v = kOdd[below(random, std::size(kOdd))];
      return field->is_repeated() ? r->SetRepeatedFloat(&message, field, place.index, v)
                                  : r->SetFloat(&message, field, v);
    }
    case Field::CPPTYPE_ENUM:
      if (!field->is_repeated()) r->SetEnumValue(&message, field, static_cast<int>(below(random, 16)));
      return;
    case Field::CPPTYPE_STRING: {  // another string of the model, or a damaged one
      std::string text;
      const Place from = places[below(random, places.size())];
      if (from.field->cpp_type() == Field::CPPTYPE_STRING && random() % 4 != 0) {
        const auto *other = from.message->GetReflection();
        text = from.field->is_repeated() ? other->GetRepeatedString(*from.message, from.field, from.index)
                                         : other->GetString(*from.message, from.field);
        if (text.size() > 4096) text.resize(4096);
      } else if (random() % 2) {
        text = field->is_repeated() ? r->GetRepeatedString(message, field, place.index) : r->GetString(message, field);
        if (!text.empty()) text.resize(below(random, text.size()));
      }
      return field->is_repeated() ? r->SetRepeatedString(&message, field, place.index, text)
                                  : r->SetString(&message, field, text);
    }
    default:
      return;
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: mutate_models COUNT SEED MODEL...\n");
    return 2;
  }
  const long count = std::atol(argv[1]);
  const auto seed = static_cast<uint64_t>(std::atoll(argv[2]));
  std::vector<std::string> models;
  std::vector<std::vector<size_t>> places;
  optc::Diagnostics ignored;
  for (int i = 3; i < argc; ++i) {
    auto bytes = optc::read_file(argv[i], ignored);
    if (!bytes.ok()) {
      std::fprintf(stderr, "mutate_models: cannot read '%s'\n", argv[i]);
      return 2;
    }
    // A model that is refused as it is would make every damage of it look handled. (One with an operator that is not
    // supported yet still tests what reads the file.)
    auto owner = std::make_shared<std::string>(*bytes);
    optc::Diagnostics whole;
    const auto undamaged = optc::import_bytes(*owner, owner, "", {}, whole);
    if (!undamaged.ok() && undamaged.failure().kind != optc::ErrorKind::kUnsupported) {
      std::fprintf(stderr, "mutate_models: '%s' is refused undamaged (its weights must lie inside)\n", argv[i]);
      for (const auto &d : whole.all()) std::fputs(optc::format(d).c_str(), stderr);
      return 2;
    }
    std::vector<size_t> structure;
    size_t run = 0;
    for (size_t at = 0; at < bytes->size(); ++at) {
      const char c = (*bytes)[at];
      const bool name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '/';
      run = name ? run + 1 : 0;
      if (run == 3)
        for (size_t k = at >= 12 ? at - 12 : 0; k <= at; ++k) structure.push_back(k);
    }
    models.push_back(*std::move(bytes));
    places.push_back(std::move(structure));
  }
  long taken = 0, refused = 0, optimized = 0;
  double slowest = 0;
  for (long n = 0; n < count; ++n) {
    Random random(seed * 1000003 + static_cast<uint64_t>(n));
    const size_t which = below(random, models.size());
    auto bytes = std::make_shared<std::string>(models[which]);
    onnx::ModelProto model;
    if (random() % 4 != 0 && model.ParseFromString(*bytes)) {
      for (size_t k = 1 + below(random, 3); k > 0; --k) change(model, random);
      bytes->clear();
      (void)model.SerializePartialToString(bytes.get());
    } else {
      for (size_t k = 1 + below(random, 2); k > 0; --k) damage(*bytes, random, places[which]);
    }
    const auto start = std::chrono::steady_clock::now();
    optc::Diagnostics diagnostics;
    // The number is said first, so that a crash names the case.
    if (std::getenv("MUTATE_VERBOSE")) std::fprintf(stderr, "case %ld of %s\n", n, argv[3 + which]);
    auto graph = optc::import_bytes(*bytes, bytes, "", {}, diagnostics);
    bool wrong = false;
    if (graph.ok()) {
      ++taken;
      optc::OptimizeReport report;
      optc::OptimizeOptions options;
      options.max_folded_bytes = 1 << 20;
      const optc::Status status = optc::optimize(*graph, options, report, diagnostics);
      optimized += status.ok();
      wrong = !status.ok() && (!diagnostics.has_error() || status.failure().kind == optc::ErrorKind::kInternal);
    } else {
      ++refused;
      if (std::getenv("MUTATE_VERBOSE") && diagnostics.has_error())
        std::fputs(optc::format(diagnostics.all()[0]).c_str(), stderr);
      wrong = !diagnostics.has_error() || graph.failure().kind == optc::ErrorKind::kInternal;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    slowest = std::max(slowest, seconds);
    if (wrong || seconds > kSlow) {
      std::fprintf(stderr, "mutate_models: case %ld of %s (seed %llu) took %.1f s\n", n, argv[3 + which],
                   static_cast<unsigned long long>(seed), seconds);
      for (const auto &d : diagnostics.all()) std::fputs(optc::format(d).c_str(), stderr);
      const std::string kept = "mutate_models.case.onnx";
      if (optc::write_file(kept, *bytes, ignored).ok()) std::fprintf(stderr, "the case is kept as %s\n", kept.c_str());
      return 1;
    }
  }
  std::printf("%ld damaged models: %ld refused, %ld taken, %ld of them optimized; slowest %.2f s\n", count, refused,
              taken, optimized, slowest);
  return 0;
}
