// Reads the text of a picture, with three networks compiled by optc.
//
//   ocr PICTURE.png...
//
// One line for each line of text: LEFT TOP WIDTH HEIGHT (pixels), SCORE, TEXT, parted by tabs.

#include <nlohmann/json.hpp>
#include <text_detector.hpp>
#include <text_direction.hpp>
#include <text_recognizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "image.h"
#include "regions.h"

namespace {

constexpr int kLineHeight = 48;                      // of what the two networks that look at lines are trained on
constexpr int kDirectionWidth = 192;                 // of the one
constexpr int kLeastWidth = 320, kMostWidth = 3200;  // of the other
constexpr int kLeastSide = 736, kMostSide = 1536, kGrid = 32;  // of the detector's picture
constexpr float kTurned = 0.9f;    // from this chance on a line is believed to stand on its head
constexpr float kReadable = 0.5f;  // mean chance of a line's characters, at least

struct Line {
  Rectangle place;
  float score = 0;
  std::string text;
};

// The characters that the recognizer knows, which the model carries as metadata: by class, with the class of nothing
// first and the blank last.
std::vector<std::string> characters() {
  const char *manifest = text_recognizer::Model::api().manifest_json();
  if (!manifest) throw std::runtime_error("the bundle text_recognizer has lost its manifest.json");
  const std::string list = nlohmann::json::parse(manifest).at("model").at("metadata").at("character");
  std::vector<std::string> names = {""};
  for (size_t from = 0; from < list.size();) {
    const size_t to = std::min(list.find('\n', from), list.size());
    names.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  names.push_back(" ");
  return names;
}

class Reader {
 public:
  std::vector<Line> read(const Image &image) {
    std::vector<Line> lines;
    for (const Rectangle &place : find(image)) {
      Line line = recognize(image, place, stands_on_its_head(image, place));
      if (!line.text.empty() && line.score >= kReadable) lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  // Where lines are, in the order of reading.
  std::vector<Rectangle> find(const Image &image) {
    const double least = std::min(image.width, image.height), most = std::max(image.width, image.height);
    const double scale = std::min(std::max(1.0, kLeastSide / least), kMostSide / most);
    const auto size = [&](int pixels) {
      return std::max(1, static_cast<int>(std::lround(pixels * scale / kGrid))) * kGrid;
    };
    const int width = size(image.width), height = size(image.height);
    const auto chances =
        detector_.run(planes(image, {0, 0, image.width, image.height}, width, height, width), height, width)
            .sigmoid_0_tmp_0;
    std::vector<Rectangle> places = text_regions(chances, width, height, RegionRules());
    for (Rectangle &p : places)
      p = {p.left * image.width / width, p.top * image.height / height,
           std::max(p.left * image.width / width + 1, p.right * image.width / width),
           std::max(p.top * image.height / height + 1, p.bottom * image.height / height)};
    // Of those side by side, the left one first.
    for (size_t i = 1; i < places.size(); ++i)
      for (size_t j = i;
           j > 0 && places[j].left < places[j - 1].left && places[j].top - places[j - 1].top < places[j].height() / 2;
           --j)
        std::swap(places[j], places[j - 1]);
    return places;
  }

  bool stands_on_its_head(const Image &image, const Rectangle &place) {
    const int width = std::clamp(width_of(place), 1, kDirectionWidth);
    const auto chances =
        direction_.run(planes(image, place, width, kLineHeight, kDirectionWidth)).save_infer_model_scale_0_tmp_1;
    return chances[1] > kTurned;
  }

  Line recognize(const Image &image, const Rectangle &place, bool turned) {
    const int width = std::clamp(width_of(place), 1, kMostWidth), padded = std::max(width, kLeastWidth);
    const auto chances =
        recognizer_.run(planes(image, place, width, kLineHeight, padded, turned), padded).softmax_11_tmp_0;
    Line line = {place, 0, ""};
    int read = 0;
    size_t last = 0;
    for (size_t step = 0; step + characters_.size() <= chances.size(); step += characters_.size()) {
      const auto begin = chances.begin() + static_cast<std::ptrdiff_t>(step);
      const auto best = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(characters_.size()));
      const auto at = static_cast<size_t>(best - begin);
      if (at != 0 && at != last) {  // what stays the same over steps is one character
        line.text += characters_[at];
        line.score += *best;
        ++read;
      }
      last = at;
    }
    if (read) line.score /= static_cast<float>(read);
    return line;
  }

  static int width_of(const Rectangle &place) {
    return static_cast<int>(std::ceil(static_cast<double>(kLineHeight) * place.width() / place.height()));
  }

  text_detector::Model detector_;
  text_direction::Model direction_;
  text_recognizer::Model recognizer_;
  const std::vector<std::string> characters_ = characters();
};

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: ocr PICTURE.png...\n");
    return 2;
  }
  try {
    Reader reader;
    for (int i = 1; i < argc; ++i)
      for (const Line &line : reader.read(read_png(argv[i])))
        std::printf("%d\t%d\t%d\t%d\t%.3f\t%s\n", line.place.left, line.place.top, line.place.width(),
                    line.place.height(), static_cast<double>(line.score), line.text.c_str());
  } catch (const std::exception &error) {
    std::fprintf(stderr, "ocr: %s\n", error.what());
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
