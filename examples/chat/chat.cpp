// Continues a text, byte by byte, by a small decoder that optc has compiled.
//
//   chat [options] PROMPT       one reply
//   chat [options]              a conversation: each line of standard input gets one, and all before it is remembered
//
//   --tokens N        the most of a reply (default 128)
//   --temperature T   0 (default): the likeliest byte each time; higher: bolder
//   --top-k K, --top-p P, --seed N
//   --threads N       0 (default): the physical cores
//   --ids             tokens as numbers, one a line, instead of text
//
// The reply goes to standard output, tokens a second to standard error.

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decoder_state.h"
#include "sampler.h"

namespace {

constexpr int kEnd = 256;            // the token behind the 256 bytes
constexpr int64_t kCapacity = 4096;  // tokens of a conversation

struct Options {
  Sampling sampling;
  int64_t tokens = 128;
  int threads = 0;
  bool ids = false;
  const char *prompt = nullptr;
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

double number(const std::string &option, const char *text, double least, double most) {
  char *end = nullptr;
  errno = 0;
  const double value = text ? std::strtod(text, &end) : 0;
  if (!text || end == text || *end || errno || !(value >= least && value <= most)) {
    char range[64];
    std::snprintf(range, sizeof range, " wants a number from %g to %g", least, most);
    throw UsageError(option + range);
  }
  return value;
}

Options parse(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ids") {
      options.ids = true;
      continue;
    }
    if (word.rfind("--", 0) != 0) {
      if (options.prompt) throw UsageError("more than one prompt");
      options.prompt = argv[i];
      continue;
    }
    const char *value = i + 1 < argc ? argv[++i] : nullptr;
    if (word == "--tokens")
      options.tokens = static_cast<int64_t>(number(word, value, 1, kCapacity));
    else if (word == "--temperature")
      options.sampling.temperature = number(word, value, 0, 100);
    else if (word == "--top-k")
      options.sampling.top_k = static_cast<int>(number(word, value, 0, kEnd + 1));
    else if (word == "--top-p")
      options.sampling.top_p = number(word, value, 0, 1);
    else if (word == "--seed")
      options.sampling.seed = static_cast<uint64_t>(number(word, value, 0, 9e15));
    else if (word == "--threads")
      options.threads = static_cast<int>(number(word, value, 0, 256));
    else
      throw UsageError("no option " + word);
  }
  return options;
}

void say(int token, bool as_number) {
  if (as_number)
    std::printf("%d\n", token);
  else if (token == '\n' || (token >= 32 && token < 127))
    std::putchar(token);
  else
    std::printf("\\x%02x", token);  // drawn weights write no UTF-8, and a terminal shall not obey them
  std::fflush(stdout);
}

// Reads the prompt at once and writes the reply token by token. `unread`: what was written last and not read back yet.
void reply(DecoderState &decoder, Sampler &sampler, const std::string &prompt, std::vector<int64_t> &unread,
           const Options &options) {
  using Clock = std::chrono::steady_clock;
  std::vector<int64_t> tokens = std::exchange(unread, {});
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  if (static_cast<int64_t>(tokens.size()) + options.tokens > decoder.room()) decoder.forget();
  if (static_cast<int64_t>(tokens.size()) + options.tokens > decoder.room())
    throw std::runtime_error("the prompt and its reply do not fit into " + std::to_string(kCapacity) + " tokens");
  const size_t read = tokens.size();
  const auto begin = Clock::now();
  const std::vector<float> *logits = &decoder.run(tokens);
  const auto first = Clock::now();
  int64_t count = 0;
  tokens.resize(1);
  while (true) {
    tokens[0] = sampler.next(*logits);
    if (tokens[0] == kEnd) break;
    say(static_cast<int>(tokens[0]), options.ids);
    if (++count == options.tokens) break;
    logits = &decoder.run(tokens);
  }
  unread = tokens;
  if (!options.ids) std::putchar('\n');
  std::fflush(stdout);
  const double reading = std::chrono::duration<double>(first - begin).count(),
               writing = std::chrono::duration<double>(Clock::now() - first).count();
  std::fprintf(stderr, "read %zu tokens in %.1f ms, wrote %lld at %.1f tokens/s\n", read, reading * 1e3,
               static_cast<long long>(count), count > 1 ? static_cast<double>(count - 1) / writing : 0.0);
}

}  // namespace

int main(int argc, char **argv) {
  try {
    const Options options = parse(argc, argv);
    DecoderState decoder(options.threads, kCapacity);
    Sampler sampler(options.sampling);
    std::vector<int64_t> unread;
    if (options.prompt) {
      if (!*options.prompt) throw UsageError("the prompt is empty");
      reply(decoder, sampler, options.prompt, unread, options);
      return 0;
    }
    for (std::string line; std::getline(std::cin, line);) reply(decoder, sampler, line + "\n", unread, options);
    return 0;
  } catch (const UsageError &error) {
    std::fprintf(stderr,
                 "chat: %s\nusage: chat [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed N] [--threads "
                 "N] [--ids] [PROMPT]\n",
                 error.what());
  } catch (const std::exception &error) {
    std::fprintf(stderr, "chat: %s\n", error.what());
  }
  return 2;
}
