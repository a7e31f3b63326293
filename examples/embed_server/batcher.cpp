#include "batcher.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>

struct Batcher::Request {
  std::vector<Tokens> texts;
  std::vector<Embedding> embeddings;
  std::atomic<size_t> left{0};
  std::mutex mutex;  // of error
  std::string error;
  Done done;

  void finished_one() {
    if (--left == 0) done(std::move(embeddings), error);
  }
};

// A worker's memory, for the largest batch.
struct Buffers {
  explicit Buffers(const EncoderModel &model) {
    const size_t tokens = static_cast<size_t>(model.most_texts * model.longest);
    ids.resize(tokens);
    mask.resize(tokens);
    types.resize(tokens);
    hidden.resize(tokens * static_cast<size_t>(model.width));
  }
  std::vector<int64_t> ids, mask, types;
  std::vector<float> hidden;
};

namespace {

// The mean of the tokens' vectors, of length 1.
Batcher::Embedding pooled(const float *hidden, size_t tokens, size_t width) {
  Batcher::Embedding mean(width, 0.0f);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t i = 0; i < width; ++i) mean[i] += hidden[t * width + i];
  double squares = 0;
  for (const float x : mean) squares += static_cast<double>(x) * static_cast<double>(x);
  const float scale = static_cast<float>(1 / std::max(std::sqrt(squares), 1e-12));
  for (float &x : mean) x *= scale;
  return mean;
}

}  // namespace

Batcher::Batcher(EncoderModel &model, int workers, size_t room) : model_(model), room_(room) {
  for (int i = 0; i < workers; ++i) encoders_.push_back(model.encoder());
  for (auto &encoder : encoders_) threads_.emplace_back([this, &encoder] { work(*encoder); });
}

Batcher::~Batcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  came_.notify_all();
  for (std::thread &thread : threads_) thread.join();
}

bool Batcher::submit(std::vector<Tokens> texts, Done done) {
  auto request = std::make_shared<Request>();
  request->left = texts.size();
  request->embeddings.resize(texts.size());
  request->done = std::move(done);
  request->texts = std::move(texts);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + request->texts.size() > room_) {
      ++counts_.rejected;
      return false;
    }
    for (size_t i = 0; i < request->texts.size(); ++i) waiting_.push_back({request, i});
  }
  if (request->texts.size() > 1)
    came_.notify_all();
  else
    came_.notify_one();
  return true;
}

Batcher::Counts Batcher::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.waiting = waiting_.size();
  return counts;
}

// The next batch; empty at the end. Workers that are idle share what waits.
std::vector<Batcher::Waiting> Batcher::take() {
  std::unique_lock lock(mutex_);
  ++idle_;
  came_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
  const size_t share = (waiting_.size() + idle_ - 1) / idle_;
  --idle_;
  const size_t count = std::min(share, static_cast<size_t>(model_.most_texts));
  std::vector<Waiting> batch(std::make_move_iterator(waiting_.begin()),
                             std::make_move_iterator(waiting_.begin() + static_cast<std::ptrdiff_t>(count)));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  counts_.texts += count;
  counts_.batches += count > 0;
  return batch;
}

void Batcher::work(Encoder &encoder) {
  Buffers buffers(model_);
  for (;;) {
    // Its own in each turn: an answered request goes at once, and with it what it holds.
    const std::vector<Waiting> batch = take();
    if (batch.empty()) return;
    try {
      embed(encoder, batch, buffers);
    } catch (const std::exception &error) {
      for (const Waiting &text : batch) {
        const std::lock_guard lock(text.request->mutex);
        text.request->error = error.what();
      }
    }
    for (const Waiting &text : batch) text.request->finished_one();
  }
}

void Batcher::embed(Encoder &encoder, const std::vector<Waiting> &batch, Buffers &buffers) {
  size_t length = 0;
  for (const Waiting &text : batch) length = std::max(length, text.request->texts[text.text].size());
  for (size_t row = 0; row < batch.size(); ++row) {
    const Tokens &tokens = batch[row].request->texts[batch[row].text];
    const auto at = static_cast<std::ptrdiff_t>(row * length), end = at + static_cast<std::ptrdiff_t>(length);
    const auto ids = std::copy(tokens.begin(), tokens.end(), buffers.ids.begin() + at);
    std::fill(ids, buffers.ids.begin() + end, 0);
    const auto mask = std::fill_n(buffers.mask.begin() + at, tokens.size(), 1);
    std::fill(mask, buffers.mask.begin() + end, 0);
  }
  encoder.run({static_cast<int64_t>(batch.size()), static_cast<int64_t>(length), buffers.ids.data(),
               buffers.mask.data(), buffers.types.data()},
              buffers.hidden.data());
  const size_t width = static_cast<size_t>(model_.width);
  for (size_t row = 0; row < batch.size(); ++row) {
    const Waiting &text = batch[row];
    text.request->embeddings[text.text] =
        pooled(buffers.hidden.data() + row * length * width, text.request->texts[text.text].size(), width);
  }
}
