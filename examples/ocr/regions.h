// From a map of chances that a pixel is text to the rectangles of lines: connected regions, each widened by what the
// detector, which is trained on shrunken lines, leaves out at their borders (Liao et al., Real-time Scene Text
// Detection with Differentiable Binarization, 2020). Lines lie level.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "image.h"

struct RegionRules {
  float text = 0.3f;    // a pixel is text from this chance on
  float sure = 0.5f;    // a region's mean chance, at least
  float unclip = 1.6f;  // times area / perimeter: how far a rectangle grows
  int shortest = 3;     // of its sides
};

// chances: [height, width]. Rectangles within it, from top to bottom.
inline std::vector<Rectangle> text_regions(const std::vector<float> &chances, int width, int height,
                                           const RegionRules &rules) {
  std::vector<Rectangle> found;
  const auto index = [&](int x, int y) {
    return static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x);
  };
  // 1 text; 0 not, or seen. Grown by a pixel, so that the words of a line hang together.
  std::vector<uint8_t> text(chances.size());
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int dy = 0; dy < 2 && chances[index(x, y)] >= rules.text; ++dy)
        for (int dx = 0; dx < 2; ++dx)
          if (x + dx < width && y + dy < height) text[index(x + dx, y + dy)] = 1;
  std::vector<std::pair<int, int>> open;
  for (int top = 0; top < height; ++top)
    for (int left = 0; left < width; ++left) {
      if (!text[index(left, top)]) continue;
      Rectangle box = {left, top, left + 1, top + 1};
      double sum = 0;
      int64_t count = 0;
      text[index(left, top)] = 0;
      open.assign(1, {left, top});
      while (!open.empty()) {
        const auto [x, y] = open.back();
        open.pop_back();
        sum += static_cast<double>(chances[index(x, y)]);
        ++count;
        box = {std::min(box.left, x), std::min(box.top, y), std::max(box.right, x + 1), std::max(box.bottom, y + 1)};
        for (int dy = -1; dy <= 1; ++dy)
          for (int dx = -1; dx <= 1; ++dx) {
            const int i = x + dx, j = y + dy;
            if (i < 0 || j < 0 || i >= width || j >= height || !text[index(i, j)]) continue;
            text[index(i, j)] = 0;
            open.emplace_back(i, j);
          }
      }
      if (box.width() < rules.shortest || box.height() < rules.shortest ||
          sum / static_cast<double>(count) < static_cast<double>(rules.sure))
        continue;
      const float grow = rules.unclip * static_cast<float>(box.width() * box.height()) /
                         static_cast<float>(2 * (box.width() + box.height()));
      const int by = static_cast<int>(grow + 0.5f);
      found.push_back({std::max(0, box.left - by), std::max(0, box.top - by), std::min(width, box.right + by),
                       std::min(height, box.bottom + by)});
    }
  std::sort(found.begin(), found.end(),
            [](const Rectangle &a, const Rectangle &b) { return std::pair(a.top, a.left) < std::pair(b.top, b.left); });
  return found;
}
