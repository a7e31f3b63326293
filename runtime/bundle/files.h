// files.h: where the files of a bundle lie, which are its weights and its manifest.
#pragma once
#include <stdio.h>

#include <string>

#if defined(__unix__) || defined(__APPLE__)
#define OPTC_HAS_MMAP 1
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define OPTC_HAS_MMAP 0
#endif

namespace optc {

// What a bundle's code is told of the places of its files when it is compiled (CMakeLists.txt does); null: unknown.
struct Places {
  const char *name;           // of the bundle
  const char *share;          // the folder of its data as installed, from that of the library: "../share/NAME"
  const char *folder;         // the bundle's folder
  const char *installed;      // where it was told to install its data
  const char *const *header;  // where the program that has this code found NAME.h; null: it did not include it
};

// Whether `path` is a file that can be opened.
static inline __attribute__((unused)) bool is_file(const std::string &path) {
#if OPTC_HAS_MMAP
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), R_OK) == 0;
#else
  FILE *f = fopen(path.c_str(), "rb");
  if (f) fclose(f);
  return f != nullptr;
#endif
}

// Where a file of this bundle lies, in this order: beside the library (or program) that holds `symbol`, as `beside`; in
// the folder of data that belongs to the library's or to the header's (a static library does not know where it lies
// itself); where it was built; where it was to be installed. The first that `fits`, else the first that is there, else
// what `beside` would be.
template <class Fits>
static std::string bundle_file(const Places &places, const std::string &beside, const std::string &name,
                               const void *symbol, const Fits &fits) {
  std::string found[6];
  size_t count = 0;
#if OPTC_HAS_MMAP
  const auto folder_of = [](const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string("./") : path.substr(0, slash + 1);
  };
  Dl_info info;
  if (dladdr(symbol, &info) && info.dli_fname) {
    found[count++] = folder_of(info.dli_fname) + beside;
    if (places.share) found[count++] = folder_of(info.dli_fname) + places.share + "/" + name;
  }
  if (places.header && *places.header) {
    found[count++] = folder_of(*places.header) + "../share/" + places.name + "/" + name;
    found[count++] = folder_of(*places.header) + "../" + name;
  }
#else
  (void)symbol;
  found[count++] = beside;
#endif
  for (const char *folder : {places.folder, places.installed})
    if (folder) found[count++] = std::string(folder) + "/" + name;
  const std::string *there = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (!is_file(found[i])) continue;
    if (fits(found[i])) return found[i];
    if (!there) there = &found[i];
  }
  return there ? *there : count ? found[0] : beside;
}

// The bundle's manifest: `embedded`, or the text of its file, NAME.manifest.json beside the library and manifest.json
// in the other places. Empty: it is in none of them, and `error` says where it would be.
static inline __attribute__((unused)) std::string manifest_text(const Places &places, const char *embedded,
                                                                const void *symbol, char *error, size_t error_size) {
  if (embedded) return embedded;
  const std::string path = bundle_file(places, std::string(places.name) + ".manifest.json", "manifest.json", symbol,
                                       [](const std::string &) { return true; });
  std::string text;
  FILE *const file = is_file(path) ? fopen(path.c_str(), "rb") : nullptr;
  if (file) {
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) text.append(block, n);
    fclose(file);
  }
  if (text.empty()) snprintf(error, error_size, "the manifest: cannot read '%s'", path.c_str());
  return text;
}

}  // namespace optc
