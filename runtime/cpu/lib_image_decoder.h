// lib_image_decoder.h: ImageDecoder. It needs the libraries that image_formats.h includes.
#pragma once
#include "image_formats.h"
#include "lib_util.h"

// By the first bytes. *format: its name, null when they are of no format that is known.
static inline OptcImageStatus optc_image_decode(const uint8_t *data, size_t size, OptcImage *image,
                                                const char **format) {
  const auto begins = [&](size_t at, const char *bytes, size_t n) {
    return size >= at + n && memcmp(data + at, bytes, n) == 0;
  };
  *format = NULL;
  if (begins(0, "\xff\xd8\xff", 3)) {
    *format = "JPEG";
#ifndef OPTC_WITHOUT_JPEG
    return optc_image_jpeg(data, size, image);
#endif
  } else if (begins(0, "\x89PNG\r\n\x1a\n", 8)) {
    *format = "PNG";
#ifndef OPTC_WITHOUT_PNG
    return optc_image_png(data, size, image);
#endif
  } else if (begins(0, "II\x2a\0", 4) || begins(0, "MM\0\x2a", 4) || begins(0, "II\x2b\0", 4) ||
             begins(0, "MM\0\x2b", 4)) {
    *format = "TIFF";
#ifndef OPTC_WITHOUT_TIFF
    return optc_image_tiff(data, size, image);
#endif
  } else if (begins(0, "RIFF", 4) && begins(8, "WEBP", 4)) {
    *format = "WebP";
#ifndef OPTC_WITHOUT_WEBP
    return optc_image_webp(data, size, image);
#endif
  } else if (begins(0, "\0\0\0\x0cjP  \r\n\x87\n", 12) || begins(0, "\xff\x4f\xff\x51", 4)) {
    *format = "JPEG 2000";
#ifndef OPTC_WITHOUT_JPEG2000
    return optc_image_jpeg2000(data, size, image);
#endif
  } else if (begins(0, "BM", 2)) {
    *format = "BMP";
    return optc_image_bmp(data, size, image);
  } else if (size > 2 && data[0] == 'P' && data[1] >= '1' && data[1] <= '6') {
    *format = "PNM";
    return optc_image_pnm(data, size, image);
  }
  return *format ? OPTC_IMAGE_LEFT_OUT : OPTC_IMAGE_UNREADABLE;
}

// input: the bytes of a file (u8). Output: u8 [height, width, channels]. Attribute pixel_format: RGB (default), BGR or
// Grayscale, whose luma is that of ITU-R 601-2. Sizes: height, width; both are 0 when the bytes cannot be decoded, as
// ONNX says.
static inline int optc_lib_image_decoder(OptcLibCall *call) {
  const OptcLibTensor *stream = &call->inputs[0];
  const char *pixels = optc_lib_string_attribute(call, "pixel_format", "RGB");
  const bool grey = optc_lib_same(pixels, "Grayscale"), reversed = optc_lib_same(pixels, "BGR");
  const int64_t channels = grey ? 1 : 3;
  OptcImage image = {0, 0, NULL};
  const char *format = NULL;
  switch (optc_image_decode((const uint8_t *)stream->data, (size_t)optc_lib_count(stream), &image, &format)) {
    case OPTC_IMAGE_OK:
      break;
    case OPTC_IMAGE_UNREADABLE:
      image.width = image.height = 0;
      break;
    case OPTC_IMAGE_TOO_LARGE:
      return optc_lib_fault(call, "ImageDecoder: the image has more pixels than OPTC_IMAGE_MAX_PIXELS allows");
    case OPTC_IMAGE_OUT_OF_MEMORY:
      return optc_lib_out_of_memory(call);
    case OPTC_IMAGE_LEFT_OUT: {
      snprintf(call->error, sizeof call->error, "ImageDecoder: this library was built without %s images", format);
      return 3;  // OPTC_MODEL_FAULT
    }
  }
  call->sizes[0] = image.height;
  call->sizes[1] = image.width;
  OptcLibTensor *out = &call->outputs[0];
  out->rank = 3;
  out->dims[0] = image.height, out->dims[1] = image.width, out->dims[2] = channels;
  const int64_t count = image.width * image.height;
  uint8_t *to = (uint8_t *)call->allocate(call->user, 0, (size_t)(count * channels));
  if (!to) {
    free(image.rgb);
    return optc_lib_out_of_memory(call);
  }
  out->data = to;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t *p = image.rgb + i * 3;
    if (grey) {
      *to++ = (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 32768u) >> 16);
    } else {
      to[0] = p[reversed ? 2 : 0], to[1] = p[1], to[2] = p[reversed ? 0 : 2];
      to += 3;
    }
  }
  free(image.rgb);
  return 0;
}
