// image_plain.h: BMP and PNM images, read without a library, and what all decoders of lib_image_decoder.h share.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The most pixels that an image may have: a small file can claim billions.
#ifndef OPTC_IMAGE_MAX_PIXELS
#define OPTC_IMAGE_MAX_PIXELS (INT64_C(1) << 27)
#endif

typedef enum {
  OPTC_IMAGE_OK,
  OPTC_IMAGE_UNREADABLE,     // no image of a format that is known, or a damaged one
  OPTC_IMAGE_TOO_LARGE,      // more than OPTC_IMAGE_MAX_PIXELS
  OPTC_IMAGE_OUT_OF_MEMORY,  // of this process
  OPTC_IMAGE_LEFT_OUT        // the bundle was built without this format
} OptcImageStatus;

// Rows from the top, three bytes a pixel: red, green, blue. `rgb` is malloc's and its receiver's.
struct OptcImage {
  int64_t width, height;
  uint8_t *rgb;
};

static inline OptcImageStatus optc_image_start(OptcImage *image, int64_t width, int64_t height) {
  if (width <= 0 || height <= 0) return OPTC_IMAGE_UNREADABLE;
  if (width > OPTC_IMAGE_MAX_PIXELS / height) return OPTC_IMAGE_TOO_LARGE;
  image->width = width;
  image->height = height;
  image->rgb = (uint8_t *)malloc((size_t)(width * height) * 3);
  return image->rgb ? OPTC_IMAGE_OK : OPTC_IMAGE_OUT_OF_MEMORY;
}
static inline OptcImageStatus optc_image_fail(OptcImage *image, OptcImageStatus why) {
  free(image->rgb);
  image->rgb = NULL;
  return why;
}

static inline uint32_t optc_image_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t optc_image_u32(const uint8_t *p) { return optc_image_u16(p) | optc_image_u16(p + 2) << 16; }

// A field of a pixel as a mask says, in 0..255.
static inline uint8_t optc_bmp_field(uint32_t pixel, uint32_t mask) {
  if (!mask) return 0;
  int shift = 0;
  while (!(mask >> shift & 1)) ++shift;
  const uint32_t top = mask >> shift;
  return (uint8_t)((uint64_t)((pixel & mask) >> shift) * 255 / top);
}

// The pixels of a run-length code, drawn from below; false: it ends before it says so.
static inline bool optc_bmp_runs(const uint8_t *p, const uint8_t *end, uint32_t bits, const uint8_t (*palette)[3],
                                 OptcImage *image) {
  const int64_t width = image->width, height = image->height;
  int64_t x = 0, y = 0;
  const auto set = [&](uint32_t colour) {
    if (x < width && y < height) memcpy(image->rgb + ((height - 1 - y) * width + x) * 3, palette[colour], 3);
    ++x;
  };
  while (end - p >= 2 && y < height) {
    const uint32_t count = p[0], value = p[1];
    p += 2;
    if (count > 0) {
      for (uint32_t k = 0; k < count; ++k) set(bits == 8 ? value : k % 2 ? value & 15 : value >> 4);
    } else if (value == 0) {  // the end of a row
      x = 0, ++y;
    } else if (value == 1) {  // the end
      return true;
    } else if (value == 2) {  // a jump
      if (end - p < 2) return false;
      x += p[0], y += p[1];
      p += 2;
    } else {  // pixels as they are, filled up to two bytes
      const int64_t bytes = bits == 8 ? value : (value + 1) / 2;
      if (end - p < bytes) return false;
      for (uint32_t k = 0; k < value; ++k) set(bits == 8 ? p[k] : k % 2 ? p[k / 2] & 15u : p[k / 2] >> 4u);
      p += bytes + (bytes % 2 && end - p > bytes ? 1 : 0);
    }
  }
  return y >= height;
}

// Windows bitmaps of 1, 2, 4, 8, 16, 24 and 32 bits, from below or from above, with palettes, bit fields, RLE4 and
// RLE8. Pixels that a run-length code jumps over are the palette's first colour.
static inline OptcImageStatus optc_image_bmp(const uint8_t *data, size_t size, OptcImage *image) {
  if (size < 26) return OPTC_IMAGE_UNREADABLE;
  const size_t at = optc_image_u32(data + 10), header = optc_image_u32(data + 14);
  const bool core = header == 12;  // OS/2's
  if ((!core && header < 40) || header > size - 14 || at > size) return OPTC_IMAGE_UNREADABLE;
  const uint8_t *h = data + 14;
  const int64_t width = core ? (int64_t)optc_image_u16(h + 4) : (int64_t)(int32_t)optc_image_u32(h + 4);
  int64_t height = core ? (int64_t)optc_image_u16(h + 6) : (int64_t)(int32_t)optc_image_u32(h + 8);
  const uint32_t bits = optc_image_u16(h + (core ? 10 : 14)), packing = core ? 0 : optc_image_u32(h + 16);
  const bool down = height < 0;
  if (down) height = -height;
  if (bits != 1 && bits != 2 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
    return OPTC_IMAGE_UNREADABLE;
  const bool fields = packing == 3 || packing == 6, runs = packing == 1 || packing == 2;
  if ((!fields && !runs && packing != 0) || (fields && bits != 16 && bits != 32) ||
      (runs && (bits != (packing == 1 ? 8u : 4u) || down)))
    return OPTC_IMAGE_UNREADABLE;
  uint32_t mask[3] = {bits == 16 ? 0x7c00u : 0xff0000u, bits == 16 ? 0x3e0u : 0xff00u, bits == 16 ? 0x1fu : 0xffu};
  if (fields) {  // within the newer headers, behind the old one
    if (size < 14 + 40 + 12) return OPTC_IMAGE_UNREADABLE;
    for (int c = 0; c < 3; ++c) mask[c] = optc_image_u32(data + 54 + 4 * c);
  }
  uint8_t palette[256][3];
  memset(palette, 0, sizeof palette);
  if (bits <= 8) {
    const size_t entry = core ? 3 : 4, from = 14 + header;
    size_t colours = core ? 0 : optc_image_u32(h + 32);
    if (colours == 0 || colours > (size_t)1 << bits) colours = (size_t)1 << bits;
    for (size_t k = 0; k < colours && from + (k + 1) * entry <= size; ++k)
      for (size_t c = 0; c < 3; ++c) palette[k][c] = data[from + k * entry + 2 - c];
  }
  const uint64_t stride = ((uint64_t)width * bits + 31) / 32 * 4, left = size - at;
  const uint8_t *p = data + at;
  // Before memory is asked for.
  if (width > 0 && height > 0 && !runs &&
      (left / stride < (uint64_t)(height - 1) ||
       left - stride * (uint64_t)(height - 1) < ((uint64_t)width * bits + 7) / 8))
    return OPTC_IMAGE_UNREADABLE;
  const OptcImageStatus started = optc_image_start(image, width, height);
  if (started != OPTC_IMAGE_OK) return started;
  if (runs) {
    for (int64_t i = 0; i < width * height; ++i) memcpy(image->rgb + i * 3, palette[0], 3);
    return optc_bmp_runs(p, data + size, bits, palette, image) ? OPTC_IMAGE_OK
                                                               : optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  }
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t *row = p + stride * (uint64_t)y;
    uint8_t *to = image->rgb + (down ? y : height - 1 - y) * width * 3;
    for (int64_t x = 0; x < width; ++x, to += 3) {
      if (bits <= 8) {
        const int64_t bit = x * bits;
        memcpy(to, palette[row[bit / 8] >> (8 - bits - bit % 8) & ((1u << bits) - 1)], 3);
      } else if (bits == 24) {
        to[0] = row[x * 3 + 2], to[1] = row[x * 3 + 1], to[2] = row[x * 3];
      } else {
        const uint32_t pixel = bits == 16 ? optc_image_u16(row + x * 2) : optc_image_u32(row + x * 4);
        for (int c = 0; c < 3; ++c) to[c] = optc_bmp_field(pixel, mask[c]);
      }
    }
  }
  return OPTC_IMAGE_OK;
}

// Goes over blanks and comments of a PNM file.
static inline void optc_pnm_blanks(const uint8_t *data, size_t size, size_t *at) {
  while (*at < size && (data[*at] == '#' || data[*at] == ' ' || (data[*at] >= 9 && data[*at] <= 13))) {
    if (data[*at] == '#')
      while (*at < size && data[*at] != '\n') ++*at;
    else
      ++*at;
  }
}
// A number of a PNM file; -1: there is none.
static inline int64_t optc_pnm_number(const uint8_t *data, size_t size, size_t *at) {
  optc_pnm_blanks(data, size, at);
  if (*at >= size || data[*at] < '0' || data[*at] > '9') return -1;
  int64_t n = 0;
  for (; *at < size && data[*at] >= '0' && data[*at] <= '9'; ++*at) {
    n = n * 10 + (data[*at] - '0');
    if (n > INT32_MAX) return -1;
  }
  return n;
}

// P1 to P6: bits (1 is black), grey and colour, as text and as bytes, up to 16 bits a sample.
static inline OptcImageStatus optc_image_pnm(const uint8_t *data, size_t size, OptcImage *image) {
  const int kind = data[1] - '0', channels = kind == 3 || kind == 6 ? 3 : 1;
  const bool bitmap = kind == 1 || kind == 4, text = kind <= 3;
  size_t at = 2;
  const int64_t width = optc_pnm_number(data, size, &at), height = optc_pnm_number(data, size, &at);
  const int64_t most = bitmap ? 1 : optc_pnm_number(data, size, &at);
  if (width <= 0 || height <= 0 || most < 1 || most > 65535) return OPTC_IMAGE_UNREADABLE;
  if (!text) ++at;  // one blank
  // Before memory is asked for: a sample takes a byte or more, in bitmaps a bit.
  const uint64_t wide = !text && most > 255 ? 2 : 1;
  const uint64_t row = bitmap && !text ? ((uint64_t)width + 7) / 8 : (uint64_t)width * (uint64_t)channels * wide;
  if (at > size || (size - at) / row < (uint64_t)height) return OPTC_IMAGE_UNREADABLE;
  const OptcImageStatus started = optc_image_start(image, width, height);
  if (started != OPTC_IMAGE_OK) return started;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t *from = data + at + (text ? 0 : row * (uint64_t)y);
    uint8_t *to = image->rgb + y * width * 3;
    for (int64_t i = 0; i < width * channels; ++i) {
      int64_t v;
      if (bitmap && text) {  // digits may stand together
        optc_pnm_blanks(data, size, &at);
        v = at < size && (data[at] == '0' || data[at] == '1') ? data[at++] - '0' : -1;
      } else if (text) {
        v = optc_pnm_number(data, size, &at);
      } else if (bitmap) {
        v = from[i / 8] >> (7 - i % 8) & 1;
      } else {
        v = wide == 2 ? from[i * 2] << 8 | from[i * 2 + 1] : from[i];
      }
      if (v < 0) return optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
      if (v > most) v = most;
      if (bitmap) v = 1 - v;
      const int64_t whole = v * 255 / most, rest = v * 255 % most * 2;  // to the nearest, ties to even
      const uint8_t scaled = (uint8_t)(whole + (rest > most || (rest == most && whole % 2) ? 1 : 0));
      if (channels == 3)
        to[i] = scaled;
      else
        to[i * 3] = to[i * 3 + 1] = to[i * 3 + 2] = scaled;
    }
  }
  return OPTC_IMAGE_OK;
}
