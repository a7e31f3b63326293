// A picture in memory, and what the three networks want of it: parts of it at other sizes, as numbers between -1 and 1.
#pragma once

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

struct Rectangle {
  int left = 0, top = 0, right = 0, bottom = 0;  // right and bottom lie outside
  int width() const { return right - left; }
  int height() const { return bottom - top; }
};

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]: blue, green, red

  const uint8_t *at(int x, int y) const {
    return &pixels[(static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)) * 3];
  }
};

// Throws std::runtime_error. What is transparent becomes white.
inline Image read_png(const std::string &path, int most_pixels = 1 << 26) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&png, path.c_str())) throw std::runtime_error(path + ": " + png.message);
  Image image;
  if (static_cast<uint64_t>(png.width) * png.height > static_cast<uint64_t>(most_pixels)) {
    png_image_free(&png);
    throw std::runtime_error(path + ": more than " + std::to_string(most_pixels) + " pixels");
  }
  png.format = PNG_FORMAT_BGR;
  image.width = static_cast<int>(png.width);
  image.height = static_cast<int>(png.height);
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  png_color white = {255, 255, 255};
  if (!png_image_finish_read(&png, &white, image.pixels.data(), 0, nullptr))
    throw std::runtime_error(path + ": " + png.message);
  return image;
}

// The part of `image` at width x height as [3, height, width] numbers from -1 to 1; with `padded` as the width, columns
// behind the picture's are 0. Bilinear, the centers of pixels on one another; turned by 180 degrees on demand.
inline std::vector<float> planes(const Image &image, const Rectangle &part, int width, int height, int padded,
                                 bool turned = false) {
  std::vector<float> out(static_cast<size_t>(3) * static_cast<size_t>(height) * static_cast<size_t>(padded));
  const float step_x = static_cast<float>(part.width()) / static_cast<float>(width);
  const float step_y = static_cast<float>(part.height()) / static_cast<float>(height);
  for (int y = 0; y < height; ++y) {
    const float v = std::clamp((static_cast<float>(turned ? height - 1 - y : y) + 0.5f) * step_y - 0.5f, 0.0f,
                               static_cast<float>(part.height() - 1));
    const int y0 = static_cast<int>(v), y1 = std::min(y0 + 1, part.height() - 1);
    for (int x = 0; x < width; ++x) {
      const float u = std::clamp((static_cast<float>(turned ? width - 1 - x : x) + 0.5f) * step_x - 0.5f, 0.0f,
                                 static_cast<float>(part.width() - 1));
      const int x0 = static_cast<int>(u), x1 = std::min(x0 + 1, part.width() - 1);
      const float right = u - static_cast<float>(x0), down = v - static_cast<float>(y0);
      for (int c = 0; c < 3; ++c) {
        const auto p = [&](int i, int j) { return static_cast<float>(image.at(part.left + i, part.top + j)[c]); };
        const float above = p(x0, y0) + (p(x1, y0) - p(x0, y0)) * right,
                    below = p(x0, y1) + (p(x1, y1) - p(x0, y1)) * right;
        out[(static_cast<size_t>(c) * static_cast<size_t>(height) + static_cast<size_t>(y)) *
                static_cast<size_t>(padded) +
            static_cast<size_t>(x)] = (above + (below - above) * down) / 127.5f - 1;
      }
    }
  }
  return out;
}
