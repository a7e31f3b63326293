// The weights of a bundle, and what is linked into its library.
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "emit/cpp/bundle_writer.h"

namespace optc {
namespace {

constexpr uint64_t kArrayLimit = 64 * 1024;  // what is linked in and no longer is a C array

}  // namespace

// Gives `sink` every byte behind the header, in order: the constants of all entries, then the GPU's.
bool BundleWriter::each_part(const Sink &sink) const {
  static const char zeros[64] = {};
  uint64_t at = 64;
  auto fill = [&](uint64_t to) {
    while (at < to) {
      const uint64_t n = std::min<uint64_t>(64, to - at);
      if (!sink(zeros, n)) return false;
      at += n;
    }
    return true;
  };
  auto part = [&](const Constant &c, uint64_t offset) {
    if (!fill(offset) || !c.give(sink)) return false;
    at += c.size();
    return true;
  };
  for (const auto &[c, offset] : weights_.parts())
    if (!part(c, offset)) return false;
  if (options_.cuda)
    for (const auto &[c, offset] : options_.cuda->constants)
      if (!part(c, cuda_weights_ + offset)) return false;
  return fill(weights_bytes_);
}

// The hash stands in the header, and what is hashed is made only once: the header is written last.
Status BundleWriter::write_weights() {
  if (weights_bytes_ == 0) {
    places_.weights = "{0, 0, 0, nullptr, nullptr}";
    return {};
  }
  weights_bytes_ = std::max<uint64_t>(weights_bytes_, 384);  // the long form of the hash needs more than 240 bytes
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t *)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto give = [&](const Sink &sink) {
    const char header[64] = {};
    return sink(header, 64) && each_part([&](const void *data, uint64_t size) {
             XXH3_128bits_update(state.get(), data, size);
             return sink(data, size);
           });
  };
  XXH128_hash_t hash{};
  const auto head = [&] {
    hash = XXH3_128bits_digest(state.get());
    std::string header(64, '\0');
    std::memcpy(header.data(), "OPTCWTS1", 8);
    const uint64_t fields[3] = {weights_bytes_, hash.low64, hash.high64};
    std::memcpy(header.data() + 8, fields, sizeof fields);
    return header;
  };
  const bool linked = options_.weights == BundleOptions::Weights::kEmbed;
  if (options_.weights == BundleOptions::Weights::kStrip) {
    give([](const void *, uint64_t) { return true; });
    head();
  } else if (!linked) {
    OPTC_TRY(write_data(name_ + ".weights", give, head));
  } else {
    places_.declarations += fmt::format("extern const unsigned char {}_weights_data[];\n", name_);
    OPTC_TRY(embed("weights", weights_bytes_, give, head));
  }
  hash_text_ = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  places_.weights = fmt::format("{{{}u, 0x{:016x}u, 0x{:016x}u, {}, {}}}", weights_bytes_, hash.low64, hash.high64,
                                facts_.weights_file ? "\"" + name_ + ".weights\"" : "nullptr",
                                linked ? name_ + "_weights_data" : "nullptr");
  return {};
}

Status BundleWriter::embed_manifest(const std::string &manifest) {
  places_.declarations += fmt::format("extern const unsigned char {}_manifest_data[];\n", name_);
  places_.manifest = fmt::format("reinterpret_cast<const char *>({}_manifest_data)", name_);
  const uint64_t bytes = manifest.size() + 1;  // with the zero at the end
  return embed(
      "manifest", bytes, [&](const Sink &sink) { return sink(manifest.c_str(), bytes); }, nullptr);
}

Status BundleWriter::write_data(const std::string &path, const Give &give, const Head &head) {
  ++files_;
  return directory_.write(path, give, head, diagnostics_);
}

Status BundleWriter::embed(const std::string &what, uint64_t bytes, const Give &give, const Head &head) {
  const std::string symbol = name_ + "_" + what + "_data", source = what + ".cpp";
  facts_.sources.push_back(source);
  if (bytes <= kArrayLimit) {
    std::string text = fmt::format(
        "// The {1} of {2}.\nextern \"C\" {{\nextern const unsigned char {0}[];\nalignas(64) const unsigned char {0}[] "
        "= "
        "{{\n",
        symbol, what, name_);
    std::string content;
    give([&](const void *data, uint64_t size) {
      content.append(static_cast<const char *>(data), size);
      return true;
    });
    if (head) {
      const std::string first = head();
      content.replace(0, first.size(), first);
    }
    for (size_t i = 0; i < content.size(); ++i)
      text += fmt::format("{},{}", static_cast<int>(static_cast<unsigned char>(content[i])), i % 32 == 31 ? "\n" : "");
    return put("src/" + source, text + "};\n}\n");
  }
  const std::string file = fmt::format("{}.{}", name_, what);
  OPTC_TRY(write_data("src/" + file, give, head));
  return put("src/" + source, fmt::format(R"ASM(// The {1} of {2}, taken into the object file as they are.
// OPTC_BUNDLE_FOLDER is the folder above this file's.
#ifndef OPTC_BUNDLE_FOLDER
#error "define OPTC_BUNDLE_FOLDER as the bundle's folder, a string (CMakeLists.txt does)"
#endif
#if defined(__APPLE__)
__asm__(".const_data\n.p2align 6\n.globl _{0}\n_{0}:\n"
        ".incbin \"" OPTC_BUNDLE_FOLDER "/src/{3}\"\n.text\n");
#else
__asm__(".section .rodata\n.balign 64\n.globl {0}\n.hidden {0}\n{0}:\n"
        ".incbin \"" OPTC_BUNDLE_FOLDER "/src/{3}\"\n.text\n");
#endif
)ASM",
                                          symbol, what, name_, file));
}

}  // namespace optc
