// image_formats.h: JPEG, PNG, TIFF, WebP and JPEG 2000 images, read by the libraries of the system. A build may leave
// some out: OPTC_WITHOUT_JPEG, OPTC_WITHOUT_PNG, OPTC_WITHOUT_TIFF, OPTC_WITHOUT_WEBP, OPTC_WITHOUT_JPEG2000.
#pragma once
#include <setjmp.h>
#include <stdio.h>

#include "image_plain.h"

#ifndef OPTC_WITHOUT_JPEG
#include <jpeglib.h>
// Behind it: what it says of errors.
#include <jerror.h>

struct OptcJpegError {
  struct jpeg_error_mgr base;
  jmp_buf back;
};
static inline void optc_jpeg_exit(j_common_ptr c) { longjmp(((struct OptcJpegError *)c->err)->back, 1); }
// A stream that ends early is no image; other oddities are read as libjpeg does.
static inline void optc_jpeg_message(j_common_ptr c, int level) {
  if (level < 0 && (c->err->msg_code == JWRN_JPEG_EOF || c->err->msg_code == JWRN_HIT_MARKER)) optc_jpeg_exit(c);
}
// Each scan of a progressive image costs as much as an image.
static inline void optc_jpeg_progress(j_common_ptr c) {
  if (c->is_decompressor && ((j_decompress_ptr)c)->input_scan_number > 500) optc_jpeg_exit(c);
}

// By the slow integer transform and smooth upsampling, libjpeg's defaults. Four components: as Adobe writes them.
static inline OptcImageStatus optc_image_jpeg(const uint8_t *data, size_t size, OptcImage *image) {
  struct jpeg_decompress_struct c;
  struct OptcJpegError error;
  struct jpeg_progress_mgr progress;
  uint8_t *volatile line = NULL;
  memset(&c, 0, sizeof c);
  memset(&progress, 0, sizeof progress);
  c.err = jpeg_std_error(&error.base);
  error.base.error_exit = optc_jpeg_exit;
  error.base.emit_message = optc_jpeg_message;
  progress.progress_monitor = optc_jpeg_progress;
  if (setjmp(error.back)) {
    free(line);
    jpeg_destroy_decompress(&c);
    return optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  }
  jpeg_create_decompress(&c);
  c.progress = &progress;
  jpeg_mem_src(&c, data, (unsigned long)size);
  jpeg_read_header(&c, TRUE);
  const bool four = c.num_components == 4;
  c.out_color_space = four ? JCS_CMYK : JCS_RGB;
  OptcImageStatus status = optc_image_start(image, c.image_width, c.image_height);
  if (status == OPTC_IMAGE_OK && four) {
    line = (uint8_t *)malloc((size_t)c.image_width * 4);
    if (!line) status = optc_image_fail(image, OPTC_IMAGE_OUT_OF_MEMORY);
  }
  if (status != OPTC_IMAGE_OK) {
    jpeg_destroy_decompress(&c);
    return status;
  }
  jpeg_start_decompress(&c);
  while (c.output_scanline < c.output_height) {
    uint8_t *to = image->rgb + (size_t)c.output_scanline * (size_t)image->width * 3, *row = four ? (uint8_t *)line : to;
    jpeg_read_scanlines(&c, &row, 1);
    const unsigned flip = c.saw_Adobe_marker ? 255 : 0;
    for (int64_t x = 0; four && x < image->width; ++x) {
      const unsigned light = 255 - (line[x * 4 + 3] ^ flip);
      for (int k = 0; k < 3; ++k) {
        const unsigned ink = (line[x * 4 + k] ^ flip) * light + 128, part = ((ink >> 8) + ink) >> 8;
        to[x * 3 + k] = (uint8_t)(part < light ? light - part : 0);
      }
    }
  }
  jpeg_finish_decompress(&c);
  jpeg_destroy_decompress(&c);
  free(line);
  return OPTC_IMAGE_OK;
}
#endif

#ifndef OPTC_WITHOUT_PNG
#include <png.h>

struct OptcPngSource {
  const uint8_t *at, *end;
};
static inline void optc_png_read(png_structp png, png_bytep to, size_t bytes) {
  struct OptcPngSource *s = (struct OptcPngSource *)png_get_io_ptr(png);
  if ((size_t)(s->end - s->at) < bytes) png_error(png, "the stream ends early");
  memcpy(to, s->at, bytes);
  s->at += bytes;
}
static inline void optc_png_error(png_structp png, png_const_charp) { png_longjmp(png, 1); }
static inline void optc_png_warning(png_structp, png_const_charp) {}

// 16-bit samples by their upper byte; transparency is dropped.
static inline OptcImageStatus optc_image_png(const uint8_t *data, size_t size, OptcImage *image) {
  struct OptcPngSource source = {data, data + size};
  uint8_t **volatile rows = NULL;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, optc_png_error, optc_png_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (!info) {
    png_destroy_read_struct(&png, NULL, NULL);
    return OPTC_IMAGE_OUT_OF_MEMORY;
  }
  if (setjmp(png_jmpbuf(png))) {
    free(rows);
    png_destroy_read_struct(&png, &info, NULL);
    return optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  }
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);  // optc_image_start has a limit of its own
  png_set_chunk_malloc_max(png, 64 << 20);
  png_set_read_fn(png, &source, optc_png_read);
  png_read_info(png, info);
  png_set_strip_16(png);
  png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  OptcImageStatus status = optc_image_start(image, png_get_image_width(png, info), png_get_image_height(png, info));
  if (status == OPTC_IMAGE_OK && png_get_rowbytes(png, info) != (size_t)image->width * 3)
    status = optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  if (status == OPTC_IMAGE_OK) {
    rows = (uint8_t **)malloc((size_t)image->height * sizeof *rows);
    if (!rows) status = optc_image_fail(image, OPTC_IMAGE_OUT_OF_MEMORY);
  }
  if (status == OPTC_IMAGE_OK) {
    for (int64_t y = 0; y < image->height; ++y) rows[y] = image->rgb + y * image->width * 3;
    png_read_image(png, rows);
  }
  free(rows);
  png_destroy_read_struct(&png, &info, NULL);
  return status;
}
#endif

#ifndef OPTC_WITHOUT_TIFF
#include <tiffio.h>

struct OptcTiffSource {
  const uint8_t *data;
  uint64_t size, at;
};
static inline tmsize_t optc_tiff_read(thandle_t handle, void *to, tmsize_t bytes) {
  struct OptcTiffSource *s = (struct OptcTiffSource *)handle;
  const uint64_t left = s->at < s->size ? s->size - s->at : 0, n = (uint64_t)bytes < left ? (uint64_t)bytes : left;
  memcpy(to, s->data + (s->at < s->size ? s->at : 0), n);
  s->at += n;
  return (tmsize_t)n;
}
static inline tmsize_t optc_tiff_write(thandle_t, void *, tmsize_t) { return 0; }
static inline toff_t optc_tiff_seek(thandle_t handle, toff_t offset, int whence) {
  struct OptcTiffSource *s = (struct OptcTiffSource *)handle;
  s->at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? s->at + offset : s->size + offset;
  return s->at;
}
static inline int optc_tiff_close(thandle_t) { return 0; }
static inline toff_t optc_tiff_size(thandle_t handle) { return ((struct OptcTiffSource *)handle)->size; }
#if TIFFLIB_VERSION >= 20221213
static inline int optc_tiff_quiet(TIFF *, void *, const char *, const char *, va_list) { return 1; }
#endif

// The first page, turned as its orientation says; transparency is dropped.
static inline OptcImageStatus optc_image_tiff(const uint8_t *data, size_t size, OptcImage *image) {
  struct OptcTiffSource source = {data, size, 0};
#if TIFFLIB_VERSION >= 20221213  // 4.5: messages of one handle, no global handlers
  TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
  if (!options) return OPTC_IMAGE_OUT_OF_MEMORY;
  TIFFOpenOptionsSetErrorHandlerExtR(options, optc_tiff_quiet, NULL);
  TIFFOpenOptionsSetWarningHandlerExtR(options, optc_tiff_quiet, NULL);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)OPTC_IMAGE_MAX_PIXELS * 4);
  TIFF *tiff = TIFFClientOpenExt("image", "rm", (thandle_t)&source, optc_tiff_read, optc_tiff_write, optc_tiff_seek,
                                 optc_tiff_close, optc_tiff_size, NULL, NULL, options);
  TIFFOpenOptionsFree(options);
#else
  TIFF *tiff = TIFFClientOpen("image", "rm", (thandle_t)&source, optc_tiff_read, optc_tiff_write, optc_tiff_seek,
                              optc_tiff_close, optc_tiff_size, NULL, NULL);
#endif
  if (!tiff) return OPTC_IMAGE_UNREADABLE;
  uint32_t width = 0, height = 0;
  uint16_t extras = 0, *kinds = NULL;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
  OptcImageStatus status = optc_image_start(image, width, height);
  // Else the colours would be multiplied by what is dropped.
  if (status == OPTC_IMAGE_OK && TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &extras, &kinds) && extras == 1) {
    const uint16_t associated = EXTRASAMPLE_ASSOCALPHA;
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &associated);
  }
  char why[1024];
  if (status == OPTC_IMAGE_OK && !TIFFRGBAImageOK(tiff, why)) status = optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  uint32_t *raster = NULL;
  if (status == OPTC_IMAGE_OK && !(raster = (uint32_t *)malloc((size_t)width * height * 4)))
    status = optc_image_fail(image, OPTC_IMAGE_OUT_OF_MEMORY);
  if (status == OPTC_IMAGE_OK && !TIFFReadRGBAImageOriented(tiff, width, height, raster, ORIENTATION_TOPLEFT, 1))
    status = optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  for (int64_t i = 0; status == OPTC_IMAGE_OK && i < image->width * image->height; ++i) {
    image->rgb[i * 3] = (uint8_t)TIFFGetR(raster[i]);
    image->rgb[i * 3 + 1] = (uint8_t)TIFFGetG(raster[i]);
    image->rgb[i * 3 + 2] = (uint8_t)TIFFGetB(raster[i]);
  }
  free(raster);
  TIFFClose(tiff);
  return status;
}
#endif

#ifndef OPTC_WITHOUT_WEBP
#include <webp/decode.h>

// Still images; transparency is dropped.
static inline OptcImageStatus optc_image_webp(const uint8_t *data, size_t size, OptcImage *image) {
  int width = 0, height = 0;
  if (!WebPGetInfo(data, size, &width, &height)) return OPTC_IMAGE_UNREADABLE;
  const OptcImageStatus status = optc_image_start(image, width, height);
  if (status != OPTC_IMAGE_OK) return status;
  const size_t bytes = (size_t)width * (size_t)height * 3;
  return WebPDecodeRGBInto(data, size, image->rgb, bytes, width * 3) ? OPTC_IMAGE_OK
                                                                     : optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
}
#endif

#ifndef OPTC_WITHOUT_JPEG2000
#include <openjpeg.h>

struct OptcJ2kSource {
  const uint8_t *data;
  size_t size, at;
};
static inline OPJ_SIZE_T optc_j2k_read(void *to, OPJ_SIZE_T bytes, void *user) {
  struct OptcJ2kSource *s = (struct OptcJ2kSource *)user;
  const size_t left = s->size - s->at, n = bytes < left ? bytes : left;
  if (n == 0) return (OPJ_SIZE_T)-1;
  memcpy(to, s->data + s->at, n);
  s->at += n;
  return n;
}
static inline OPJ_OFF_T optc_j2k_skip(OPJ_OFF_T bytes, void *user) {
  struct OptcJ2kSource *s = (struct OptcJ2kSource *)user;
  if (bytes < 0) return -1;
  const size_t left = s->size - s->at, n = (uint64_t)bytes < left ? (size_t)bytes : left;
  s->at += n;
  return (OPJ_OFF_T)n;
}
static inline OPJ_BOOL optc_j2k_seek(OPJ_OFF_T to, void *user) {
  struct OptcJ2kSource *s = (struct OptcJ2kSource *)user;
  if (to < 0 || (uint64_t)to > s->size) return OPJ_FALSE;
  s->at = (size_t)to;
  return OPJ_TRUE;
}

// A sample of component `c` at a pixel, in 0..255.
static inline int optc_j2k_sample(const opj_image_t *from, int c, int64_t x, int64_t y) {
  const opj_image_comp_t *k = &from->comps[c];
  int64_t at = x / k->dx, down = y / k->dy;
  if (at >= k->w) at = (int64_t)k->w - 1;
  if (down >= k->h) down = (int64_t)k->h - 1;
  const int64_t most = (INT64_C(1) << k->prec) - 1;
  int64_t v = (int64_t)k->data[down * k->w + at] + (k->sgnd ? INT64_C(1) << (k->prec - 1) : 0);
  v = v < 0 ? 0 : v > most ? most : v;
  return (int)(k->prec >= 8 ? v >> (k->prec - 8) : (v * 255 + most / 2) / most);
}
static inline uint8_t optc_j2k_byte(double v) { return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5); }

// Code streams and JP2 files of one to four components (the second, or fourth, is transparency, which is dropped).
static inline OptcImageStatus optc_image_jpeg2000(const uint8_t *data, size_t size, OptcImage *image) {
  struct OptcJ2kSource source = {data, size, 0};
  const bool stream_only = data[0] == 0xff;
  opj_codec_t *codec = opj_create_decompress(stream_only ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
  opj_stream_t *stream = codec ? opj_stream_create(65536, OPJ_TRUE) : NULL;
  if (!stream) {
    if (codec) opj_destroy_codec(codec);
    return OPTC_IMAGE_OUT_OF_MEMORY;
  }
  opj_stream_set_user_data(stream, &source, NULL);
  opj_stream_set_user_data_length(stream, size);
  opj_stream_set_read_function(stream, optc_j2k_read);
  opj_stream_set_skip_function(stream, optc_j2k_skip);
  opj_stream_set_seek_function(stream, optc_j2k_seek);
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  opj_image_t *from = NULL;
  OptcImageStatus status = OPTC_IMAGE_UNREADABLE;
  if (opj_setup_decoder(codec, &parameters) && opj_read_header(stream, codec, &from) && from && from->x1 > from->x0 &&
      from->y1 > from->y0 && from->numcomps >= 1 && from->numcomps <= 4)
    status = optc_image_start(image, (int64_t)from->x1 - from->x0, (int64_t)from->y1 - from->y0);
  if (status == OPTC_IMAGE_OK && !(opj_decode(codec, stream, from) && opj_end_decompress(codec, stream)))
    status = optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  for (uint32_t c = 0; status == OPTC_IMAGE_OK && c < from->numcomps; ++c) {
    const opj_image_comp_t *k = &from->comps[c];
    if (!k->data || !k->w || !k->h || !k->dx || !k->dy || k->prec < 1 || k->prec > 31)
      status = optc_image_fail(image, OPTC_IMAGE_UNREADABLE);
  }
  if (status == OPTC_IMAGE_OK) {
    const bool colour = from->numcomps >= 3;
    const bool ycc =
        colour && (from->color_space == OPJ_CLRSPC_SYCC ||
                   (from->color_space != OPJ_CLRSPC_SRGB && from->comps[0].dx == 1 && from->comps[1].dx > 1));
    uint8_t *to = image->rgb;
    for (int64_t y = 0; y < image->height; ++y)
      for (int64_t x = 0; x < image->width; ++x, to += 3) {
        const int a = optc_j2k_sample(from, 0, x, y);
        const int b = colour ? optc_j2k_sample(from, 1, x, y) : a, c = colour ? optc_j2k_sample(from, 2, x, y) : a;
        to[0] = ycc ? optc_j2k_byte(a + 1.402 * (c - 128)) : (uint8_t)a;
        to[1] = ycc ? optc_j2k_byte(a - 0.344136 * (b - 128) - 0.714136 * (c - 128)) : (uint8_t)b;
        to[2] = ycc ? optc_j2k_byte(a + 1.772 * (b - 128)) : (uint8_t)c;
      }
  }
  if (from) opj_image_destroy(from);
  opj_stream_destroy(stream);
  opj_destroy_codec(codec);
  return status;
}
#endif
