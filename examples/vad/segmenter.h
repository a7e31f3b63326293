// From probabilities of speech, frame by frame, to segments. A segment begins where the probability reaches `on` and
// ends where it has stayed below `off` for `silence` samples; shorter ones than `shortest` are dropped; `pad` is added
// on both sides, as far as the neighbours leave room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

struct Segment {
  int64_t begin = 0, end = 0;  // samples
};

class Segmenter {
 public:
  struct Rules {
    float on = 0.5f, off = 0.35f;
    int64_t silence = 1600, shortest = 4000, pad = 480;  // samples: 100, 250 and 30 ms at 16 kHz
  };
  explicit Segmenter(const Rules &rules) : rules_(rules) {}

  // The next frame, `samples` long. Returns a segment when one is known to be over: at once, not at the file's end.
  std::optional<Segment> add(float probability, int64_t samples) {
    const int64_t at = position_;
    position_ += samples;
    if (!speaking_) {
      if (probability < rules_.on) return std::nullopt;
      speaking_ = true;
      begin_ = at;
      quiet_since_ = -1;
      return std::nullopt;
    }
    if (probability >= rules_.on) quiet_since_ = -1;
    if (probability < rules_.off && quiet_since_ < 0) quiet_since_ = at;
    if (quiet_since_ < 0 || position_ - quiet_since_ < rules_.silence) return std::nullopt;
    return close(quiet_since_);
  }

  // The end of the stream, which has `length` samples.
  std::optional<Segment> finish(int64_t length) {
    if (!speaking_) return std::nullopt;
    return close(std::min(length, quiet_since_ < 0 ? length : quiet_since_), length);
  }

 private:
  std::optional<Segment> close(int64_t end, int64_t length = INT64_MAX) {
    speaking_ = false;
    if (end - begin_ < rules_.shortest) return std::nullopt;
    Segment segment;
    segment.begin = std::max(begin_ - rules_.pad, last_end_);
    segment.end = std::min(end + rules_.pad, length);
    last_end_ = segment.end;
    return segment;
  }

  Rules rules_;
  bool speaking_ = false;
  int64_t position_ = 0, begin_ = 0, quiet_since_ = -1, last_end_ = 0;
};
