// Reading a WAV file from front to back, as it arrives: 16-bit PCM of any number of channels, which are averaged.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

class WavReader {
 public:
  // Reads up to the first sample. `file` stays the caller's. Throws std::runtime_error with the reason.
  explicit WavReader(std::FILE *file) : file_(file) {
    char id[4];
    read(id, 4, "the file is no WAV");
    number(4);  // the file's size, which nobody knows of a stream
    char kind[4];
    read(kind, 4, "the file is no WAV");
    if (std::memcmp(id, "RIFF", 4) != 0 || std::memcmp(kind, "WAVE", 4) != 0)
      throw std::runtime_error("the file is no WAV");
    for (;;) {
      read(id, 4, "no samples in the file");
      const uint32_t length = number(4);
      if (std::memcmp(id, "data", 4) == 0) {
        if (channels_ == 0) throw std::runtime_error("the samples come before their format");
        left_ = length;
        return;
      }
      const uint32_t begin = std::memcmp(id, "fmt ", 4) == 0 ? format(length) : 0;
      skip(uint64_t{length} - begin + (length & 1));
    }
  }

  int rate() const { return rate_; }

  // Up to `count` samples between -1 and 1; fewer only at the end.
  size_t read_samples(float *out, size_t count) {
    bytes_.resize(count * channels_ * 2);
    size_t wanted = bytes_.size();
    if (wanted > left_) wanted = static_cast<size_t>(left_);
    const size_t got = std::fread(bytes_.data(), 1, wanted, file_) / (channels_ * 2);
    left_ -= got * channels_ * 2;
    for (size_t i = 0; i < got; ++i) {
      int sum = 0;
      for (size_t c = 0; c < channels_; ++c) {
        const uint8_t *at = &bytes_[(i * channels_ + c) * 2];
        sum += static_cast<int16_t>(static_cast<uint16_t>(at[0] | at[1] << 8));
      }
      out[i] = static_cast<float>(sum) / (32768.0f * static_cast<float>(channels_));
    }
    return got;
  }

 private:
  // The part of a format chunk that is read; returns its bytes.
  uint32_t format(uint32_t length) {
    if (length < 16) throw std::runtime_error("the WAV's format is cut off");
    const uint32_t coding = number(2);
    channels_ = number(2);
    rate_ = static_cast<int>(number(4));
    number(4);
    number(2);
    const uint32_t bits = number(2);
    if ((coding != 1 && coding != 0xFFFE) || bits != 16 || channels_ == 0 || channels_ > 64)
      throw std::runtime_error(
          "the WAV holds no 16-bit PCM; for example: ffmpeg -i IN -c:a pcm_s16le -ar 16000 OUT.wav");
    return 16;
  }
  uint32_t number(int bytes) {
    uint8_t b[4] = {};
    read(b, static_cast<size_t>(bytes), "the WAV is cut off");
    return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24;
  }
  void read(void *to, size_t bytes, const char *otherwise) {
    if (std::fread(to, 1, bytes, file_) != bytes) throw std::runtime_error(otherwise);
  }
  void skip(uint64_t bytes) {  // a pipe cannot seek
    char gone[512];
    while (bytes > 0) {
      const size_t part = bytes < sizeof gone ? static_cast<size_t>(bytes) : sizeof gone;
      read(gone, part, "the WAV is cut off");
      bytes -= part;
    }
  }

  std::FILE *file_;
  std::vector<uint8_t> bytes_;
  size_t channels_ = 0;
  int rate_ = 0;
  uint64_t left_ = 0;
};
