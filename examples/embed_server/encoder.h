// The network as the server sees it: token ids in, a vector for each token out. encoder_optc.cpp is the bundle,
// encoder_onnxruntime.cpp the same model in ONNX Runtime, to compare with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

struct Batch {
  int64_t texts = 0, length = 0;   // length: tokens of the longest; shorter rows are padded
  const int64_t *ids = nullptr;    // [texts, length]
  const int64_t *mask = nullptr;   // [texts, length]: 1 a token, 0 padding
  const int64_t *types = nullptr;  // [texts, length]
};

// What runs one batch at a time: one for each worker thread.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // hidden: [texts, length, width]. Throws std::runtime_error.
  virtual void run(const Batch &batch, float *hidden) = 0;
};

// The model: its weights, shared by all encoders, which it outlives.
class EncoderModel {
 public:
  virtual ~EncoderModel() = default;
  virtual std::unique_ptr<Encoder> encoder() = 0;

  int64_t most_texts = 0, longest = 0;  // that one batch may have
  int64_t width = 0;                    // of a vector
  std::string engine;
};

// `model`: a .onnx file for an engine that reads one; the bundle has its own. Throws std::runtime_error.
std::unique_ptr<EncoderModel> open_encoder_model(const std::string &model);
