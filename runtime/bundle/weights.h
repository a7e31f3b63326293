// weights.h: the packed weights of a bundle, mapped from the file beside the library, linked into it, or read through
// the caller's function.
//
// Layout: 64 bytes of header ("OPTCWTS1", size of the whole as u64, XXH3-128 of what follows the header, zeros), then
// the constants at the offsets that the code knows, each 64-byte aligned.
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>
#include <string>

#include "runtime/bundle/files.h"
#include "runtime/bundle/xxh3.h"
#include "runtime/optc.h"

namespace optc {

// What the code knows of its weights; M::weights of the model.
struct WeightsSpec {
  uint64_t bytes;  // of the whole, header included; 0: the model has no weights
  uint64_t hash_low, hash_high;
  const char *file;           // its name beside the library; null: no file
  const unsigned char *data;  // embedded; null: not
};

struct Weights {
  std::atomic<int> users{1};
  const uint8_t *data = nullptr;
  void *mapping = nullptr;  // to be unmapped
  size_t mapped_bytes = 0;
  void *memory = nullptr;                // to be freed
  uint64_t hash_low = 0, hash_high = 0;  // of the code that they were loaded for
};

static inline __attribute__((unused)) void release(Weights *w) {
  if (!w || w->users.fetch_sub(1) != 1) return;
#if OPTC_HAS_MMAP
  if (w->mapping) munmap(w->mapping, w->mapped_bytes);
#endif
  free(w->memory);
  delete w;
}

static inline __attribute__((unused)) bool header_matches(const WeightsSpec &spec, const uint8_t *header) {
  uint64_t fields[3];
  memcpy(fields, header + 8, sizeof fields);
  return memcmp(header, "OPTCWTS1", 8) == 0 && fields[0] == spec.bytes && fields[1] == spec.hash_low &&
         fields[2] == spec.hash_high;
}

// Whether the file begins as the weights of this code do.
static inline __attribute__((unused)) bool file_matches(const WeightsSpec &spec, const char *path) {
  uint8_t header[64];
  FILE *const file = fopen(path, "rb");
  const bool good = file && fread(header, 1, sizeof header, file) == sizeof header && header_matches(spec, header);
  if (file) fclose(file);
  return good;
}

// `symbol`: an address in this library. On failure `error` says why.
static inline __attribute__((unused)) optc_status load_weights(const WeightsSpec &spec, const Places &places,
                                                               const optc_options *options, const void *symbol,
                                                               Weights **out, char *error, size_t error_size) {
  Weights *w = new (std::nothrow) Weights;
  if (!w) {
    snprintf(error, error_size, "weights: out of memory");
    return OPTC_OUT_OF_MEMORY;
  }
  w->hash_low = spec.hash_low;
  w->hash_high = spec.hash_high;
  auto fail = [&](optc_status status) {
    release(w);
    return status;
  };
  if (spec.bytes == 0) {
    *out = w;
    return OPTC_OK;
  }
  if (options && options->read_weights) {
    w->memory = aligned_alloc(64, (spec.bytes + 63) / 64 * 64);
    if (!w->memory) {
      snprintf(error, error_size, "weights: out of memory: %llu bytes", static_cast<unsigned long long>(spec.bytes));
      return fail(OPTC_OUT_OF_MEMORY);
    }
    if (options->read_weights(options->user, 0, w->memory, spec.bytes) != 0) {
      snprintf(error, error_size, "weights: the caller's read_weights failed");
      return fail(OPTC_IO);
    }
    w->data = static_cast<const uint8_t *>(w->memory);
  } else if (spec.data) {
    w->data = spec.data;
  } else {
    const bool given = options && options->weights_path;
    if (!given && !spec.file) {
      snprintf(error, error_size, "weights: this bundle has none: give read_weights or weights_path");
      return fail(OPTC_IO);
    }
    const std::string path =
        given ? options->weights_path
              : bundle_file(places, spec.file, spec.file, symbol,
                            [&](const std::string &candidate) { return file_matches(spec, candidate.c_str()); });
#if OPTC_HAS_MMAP
    // O_NONBLOCK: a FIFO must not hold the open; what is no regular file is refused just below.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) {
      snprintf(error, error_size, "weights: cannot open '%s': %s", path.c_str(), strerror(errno));
      if (file >= 0) ::close(file);
      return fail(OPTC_IO);
    }
    if (!S_ISREG(status.st_mode)) {
      ::close(file);
      snprintf(error, error_size, "weights: '%s' is no regular file", path.c_str());
      return fail(OPTC_IO);
    }
    if (static_cast<uint64_t>(status.st_size) != spec.bytes) {
      ::close(file);
      snprintf(error, error_size, "weights: '%s' has %lld bytes, expected %llu", path.c_str(),
               static_cast<long long>(status.st_size), static_cast<unsigned long long>(spec.bytes));
      return fail(OPTC_IO);
    }
    void *mapping = mmap(nullptr, spec.bytes, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    if (mapping == MAP_FAILED) {
      snprintf(error, error_size, "weights: cannot map '%s'", path.c_str());
      return fail(OPTC_IO);
    }
    if (!header_matches(spec, static_cast<const uint8_t *>(mapping))) {
      munmap(mapping, spec.bytes);
      snprintf(error, error_size, "weights: '%s' belongs to another build of this model", path.c_str());
      return fail(OPTC_IO);
    }
    w->mapping = mapping;
    w->mapped_bytes = spec.bytes;
    w->data = static_cast<const uint8_t *>(mapping);
#else
    FILE *file = fopen(path.c_str(), "rb");
    w->memory = malloc(spec.bytes);
    const bool read = file && w->memory && fread(w->memory, 1, spec.bytes, file) == spec.bytes;
    if (file) fclose(file);
    if (!read) {
      snprintf(error, error_size, "weights: cannot read '%s'", path.c_str());
      return fail(OPTC_IO);
    }
    w->data = static_cast<const uint8_t *>(w->memory);
#endif
  }
  if (!header_matches(spec, w->data)) {
    snprintf(error, error_size, "weights: not those that this code was made for");
    return fail(OPTC_IO);
  }
  if (options && options->check_weights) {
    uint64_t low, high;
    xxh3_128(w->data + 64, spec.bytes - 64, &low, &high);
    if (low != spec.hash_low || high != spec.hash_high) {
      snprintf(error, error_size, "weights: the checksum does not match: the data is damaged");
      return fail(OPTC_IO);
    }
  }
  *out = w;
  return OPTC_OK;
}

}  // namespace optc
