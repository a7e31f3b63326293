// The decoders of ImageDecoder (runtime/cpu/lib_image_decoder.h) on the files of testdata/images, which Pillow decoded,
// and on damaged ones.
#include "runtime/cpu/lib_image_decoder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;
const std::string kFolder = OPTC_SOURCE_DIR "/testdata/images/";

struct Expected {
  std::string name;
  int64_t height, width;
  Bytes rgb;
};

std::vector<Expected> expected() {
  std::ifstream file(kFolder + "expected.txt");
  std::vector<Expected> all;
  std::string hex;
  for (Expected e; file >> e.name >> e.height >> e.width >> hex; all.push_back(e)) {
    e.rgb.clear();
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
      e.rgb.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return all;
}

Bytes read(const std::string &name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string s = text.str();
  return Bytes(s.begin(), s.end());
}

struct Decoded {
  OptcImageStatus status;
  int64_t height, width;
  Bytes rgb;
};

// From memory that ends with the data, so that a read beyond it is one beyond an allocation.
Decoded decode(const Bytes &data) {
  std::vector<uint8_t> exact(data);
  exact.shrink_to_fit();
  OptcImage image = {0, 0, nullptr};
  const char *format = nullptr;
  Decoded d = {optc_image_decode(exact.data(), exact.size(), &image, &format), 0, 0, {}};
  if (d.status == OPTC_IMAGE_OK) {
    d.height = image.height, d.width = image.width;
    d.rgb.assign(image.rgb, image.rgb + image.height * image.width * 3);
  } else {
    EXPECT_EQ(image.rgb, nullptr);
  }
  free(image.rgb);
  return d;
}

bool is_lossy(const std::string &name) { return name.find(".jpg") != std::string::npos || name.find("lossy") == 0; }

TEST(ImageDecoder, GivesWhatPillowGives) {
  const auto all = expected();
  ASSERT_GT(all.size(), 40u);
  for (const Expected &e : all) {
    const Decoded d = decode(read(e.name));
    ASSERT_EQ(d.status, OPTC_IMAGE_OK) << e.name;
    ASSERT_EQ(d.height, e.height) << e.name;
    ASSERT_EQ(d.width, e.width) << e.name;
    ASSERT_EQ(d.rgb.size(), e.rgb.size()) << e.name;
    const int most = is_lossy(e.name) ? 2 : 0;  // libraries of other versions round transforms otherwise
    for (size_t i = 0; i < d.rgb.size(); ++i) ASSERT_LE(std::abs(d.rgb[i] - e.rgb[i]), most) << e.name << " byte " << i;
  }
}

TEST(ImageDecoder, EndsOnDamagedFiles) {
  std::mt19937 random(7);
  for (const Expected &e : expected()) {
    const Bytes whole = read(e.name);
    size_t unreadable = 0;
    for (int round = 0; round < 150; ++round) {
      Bytes data = whole;
      if (round < 30) data.resize(data.size() * static_cast<size_t>(round) / 30);
      if (round >= 30)
        for (int k = 0; k <= round % 4; ++k) data[random() % data.size()] = static_cast<uint8_t>(random());
      if (round >= 120) data.resize(random() % data.size());
      unreadable += decode(data).status != OPTC_IMAGE_OK;
    }
    EXPECT_GT(unreadable, 10u) << e.name;
  }
}

TEST(ImageDecoder, RefusesWhatIsNoImage) {
  for (const std::string &s :
       {std::string(), std::string("P"), std::string("P7 1 1"), std::string("BM"), std::string("GIF89a"),
        std::string("\xff\xd8\xff"), std::string("RIFF....WEBP"), std::string("P5\n3 3\n255\n12345678"),
        std::string("P6\n0 3\n255\n"), std::string("P2\n2 1\n0\n1 1"), std::string("P1\n2 1\n1x")})
    EXPECT_EQ(decode(Bytes(s.begin(), s.end())).status, OPTC_IMAGE_UNREADABLE) << s;
}

// A header that claims more than the file has is seen before memory is asked for.
TEST(ImageDecoder, BoundsWhatHeadersClaim) {
  const std::string pnm = "P6\n1000000 1000000\n255\n";
  EXPECT_EQ(decode(Bytes(pnm.begin(), pnm.end())).status, OPTC_IMAGE_UNREADABLE);
  Bytes bmp = read("rgb.bmp");
  for (size_t at : {20u, 24u}) bmp[at] = 0x7f;  // width and height in millions
  EXPECT_EQ(decode(bmp).status, OPTC_IMAGE_UNREADABLE);
  Bytes rle = read("rle8.bmp");
  for (size_t at : {20u, 24u}) rle[at] = 0x7f;
  EXPECT_EQ(decode(rle).status, OPTC_IMAGE_TOO_LARGE);
  Bytes jpeg2000 = read("grey.j2k");  // x1 of its SIZ segment
  jpeg2000[8] = jpeg2000[12] = 0x7f;
  EXPECT_NE(decode(jpeg2000).status, OPTC_IMAGE_OK);
}

}  // namespace
