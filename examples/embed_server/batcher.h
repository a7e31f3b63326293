// Texts that wait become batches: a worker that is free takes what has come meanwhile, up to what the model takes at a
// time. Nothing waits for a batch to fill.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "encoder.h"

class Batcher {
 public:
  using Tokens = std::vector<int64_t>;
  using Embedding = std::vector<float>;  // of the length 1
  // Called once, in a worker's thread: an embedding for each text, or an error.
  using Done = std::function<void(std::vector<Embedding> embeddings, const std::string &error)>;

  struct Counts {
    uint64_t texts = 0, batches = 0, rejected = 0;
    size_t waiting = 0;
  };

  // `workers` threads with an encoder each; at most `room` texts wait. `model` outlives this.
  Batcher(EncoderModel &model, int workers, size_t room);
  // Finishes what waits.
  ~Batcher();
  Batcher(const Batcher &) = delete;
  Batcher &operator=(const Batcher &) = delete;

  // False when there is no room for all of them: `done` is not called then. Each text has 1 to longest tokens.
  bool submit(std::vector<Tokens> texts, Done done);

  Counts counts() const;

 private:
  struct Request;  // the texts that came together
  struct Waiting {
    std::shared_ptr<Request> request;
    size_t text;
  };
  void work(Encoder &encoder);
  std::vector<Waiting> take();
  void embed(Encoder &encoder, const std::vector<Waiting> &batch, struct Buffers &buffers);

  EncoderModel &model_;
  const size_t room_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Waiting> waiting_;
  size_t idle_ = 0;
  bool ending_ = false;
  Counts counts_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::thread> threads_;
};
