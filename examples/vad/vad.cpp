// Says where in a recording somebody speaks, with the silero-vad model compiled by optc.
//
//   vad [--probabilities] FILE.wav        or - for standard input, which may be a live stream
//
// One line a segment, "BEGIN END" in seconds, as soon as it is over. With --probabilities one line a frame instead.

#include <silero_vad.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "segmenter.h"
#include "wav.h"

namespace {

// The model with what it remembers of the stream so far: the state of its LSTM and the end of the last frame. A frame
// allocates nothing: the model writes its next state into the buffer that the frame after reads.
class SpeechDetector {
 public:
  explicit SpeechDetector(int rate) : rate_(rate), frame_(rate == 8000 ? 256 : 512), context_(rate == 8000 ? 32 : 64) {
    input_.fill(0);
    for (auto &state : states_) state.fill(0);
  }

  size_t frame() const { return static_cast<size_t>(frame_); }
  // Where the next frame's samples go: frame() floats.
  float *next_frame() { return input_.data() + context_; }

  // The probability that the frame in next_frame() is speech.
  float run() {
    float probability = 0;
    const optc_status status = silero_vad_run(model_.context(), context_ + frame_, input_.data(), &rate_,
                                              states_[0].data(), &probability, states_[1].data());
    if (status != OPTC_OK) throw silero_vad::Error(status, silero_vad::Model::api().last_error(model_.context()));
    std::swap(states_[0], states_[1]);
    std::memmove(input_.data(), input_.data() + frame_, static_cast<size_t>(context_) * sizeof(float));
    return probability;
  }

 private:
  static optc_options one_thread() {
    optc_options options = {};
    options.threads = 1;  // a frame is 32 ms of sound and some 100 us of work
    return options;
  }
  silero_vad::Model model_{one_thread()};
  int64_t rate_, frame_, context_;
  std::array<float, 576> input_;
  std::array<std::array<float, 2 * 128>, 2> states_;
};

void say(const Segment &segment, int rate) {
  std::printf("%.3f %.3f\n", static_cast<double>(segment.begin) / rate, static_cast<double>(segment.end) / rate);
  std::fflush(stdout);
}

void detect(std::FILE *file, bool probabilities) {
  WavReader wav(file);
  const int rate = wav.rate();
  if (rate != 8000 && rate != 16000)
    throw std::runtime_error("the recording has " + std::to_string(rate) + " Hz; the model hears 8000 or 16000");
  SpeechDetector detector(rate);
  Segmenter::Rules rules;
  if (rate == 8000) rules.silence /= 2, rules.shortest /= 2, rules.pad /= 2;
  Segmenter segmenter(rules);
  const size_t frame = detector.frame();
  int64_t length = 0;
  for (size_t got = frame; got == frame;) {
    float *samples = detector.next_frame();
    got = wav.read_samples(samples, frame);
    if (got == 0) break;
    std::fill(samples + got, samples + frame, 0.0f);
    length += static_cast<int64_t>(got);
    const float probability = detector.run();
    if (probabilities)
      std::printf("%.6f\n", static_cast<double>(probability));
    else if (const auto segment = segmenter.add(probability, static_cast<int64_t>(frame)))
      say(*segment, rate);
  }
  if (const auto segment = segmenter.finish(length); segment && !probabilities) say(*segment, rate);
}

}  // namespace

int main(int argc, char **argv) {
  bool probabilities = false;
  const char *path = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--probabilities") == 0)
      probabilities = true;
    else if (!path && (argv[i][0] != '-' || argv[i][1] == 0))
      path = argv[i];
    else
      path = "";
  }
  if (!path || !*path) {
    std::fprintf(stderr, "usage: vad [--probabilities] FILE.wav (- for standard input)\n");
    return 2;
  }
  const bool standard_input = std::strcmp(path, "-") == 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(standard_input ? stdin : std::fopen(path, "rb"),
                                                              [](std::FILE *f) { return std::fclose(f); });
  try {
    if (!file) throw std::runtime_error(std::strerror(errno));
    detect(file.get(), probabilities);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "vad: %s: %s\n", path, error.what());
    return 2;
  }
  return std::fflush(stdout) == 0 && !std::ferror(stdout) ? 0 : 2;
}
