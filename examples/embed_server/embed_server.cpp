// A sentence embedder behind HTTP.
//
//   embed_server --vocabulary vocab.txt [--host 127.0.0.1] [--port 8080] [--threads N] [--queue 1024]
//
//   POST /embed  {"inputs": "a text"} or {"inputs": ["a text", ...]}, and "truncate": true where longer texts may be
//   cut
//                → {"embeddings": [[...], ...]}, one of length 1 for each text
//   GET /health  → {"status": "ok", ...};  GET /stats → texts, batches, rejected, waiting
//
// SIGTERM or SIGINT: no new requests, those under way are answered, exit code 0.

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "batcher.h"
#include "encoder.h"
#include "http_server.h"
#include "wordpiece.h"

namespace {

namespace asio = boost::asio;

struct Options {
  std::string vocabulary, model, host = "127.0.0.1";
  int port = 8080, threads = 0, queue = 1024, connections = 256, body = 1 << 20;
};

struct Refusal {
  unsigned status = 400;
  std::string why;
};

// The texts of a request's body. Throws Refusal.
std::vector<std::string> texts_of(const nlohmann::json &body) {
  if (!body.is_object()) throw Refusal{400, "the body is no JSON object: {\"inputs\": [\"a text\"]}"};
  const auto inputs = body.find("inputs");
  if (inputs == body.end()) throw Refusal{400, "\"inputs\" is missing: a text or a list of texts"};
  if (inputs->is_string()) return {inputs->get<std::string>()};
  if (!inputs->is_array() || inputs->empty()) throw Refusal{400, "\"inputs\" is neither a text nor a list of texts"};
  std::vector<std::string> texts;
  for (const auto &text : *inputs) {
    if (!text.is_string()) throw Refusal{400, "\"inputs\"[" + std::to_string(texts.size()) + "] is no text"};
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

// {"embeddings": [[...], ...]}, with as many digits as tell each float from its neighbours.
std::string answer(const std::vector<Batcher::Embedding> &embeddings) {
  std::string out = "{\"embeddings\":[";
  char number[32];
  for (size_t row = 0; row < embeddings.size(); ++row) {
    out += row ? ",[" : "[";
    for (size_t i = 0; i < embeddings[row].size(); ++i) {
      if (i) out += ',';
      out.append(number, std::to_chars(number, number + sizeof number, embeddings[row][i]).ptr);
    }
    out += ']';
  }
  return out + "]}";
}

class EmbedService {
 public:
  EmbedService(const Options &options, EncoderModel &model)
      : most_texts_(static_cast<size_t>(options.queue)),
        model_(model),
        tokenizer_(options.vocabulary),
        batcher_(model, options.threads, most_texts_) {}

  void handle(const HttpRequest &request, const Reply &reply) {
    const std::string target(request.target());
    const auto method = request.method_string();
    try {
      if (target == "/embed") {
        if (method != "POST") throw Refusal{405, "POST a JSON body to /embed"};
        embed(request.body(), reply);
      } else if (target == "/health" || target == "/stats") {
        if (method != "GET") throw Refusal{405, "GET " + target};
        reply(json_response(200, target == "/health" ? health() : stats()));
      } else {
        throw Refusal{404, "there are POST /embed, GET /health and GET /stats"};
      }
    } catch (const Refusal &refusal) {
      HttpResponse response = error_response(refusal.status, refusal.why);
      if (refusal.status == 503) response.set(boost::beast::http::field::retry_after, "1");
      if (refusal.status == 405) response.set(boost::beast::http::field::allow, target == "/embed" ? "POST" : "GET");
      reply(std::move(response));
    }
  }

 private:
  void embed(const std::string &text, const Reply &reply) {
    nlohmann::json body;
    try {
      body = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception &error) {
      throw Refusal{400, std::string("the body is no JSON: ") + error.what()};
    }
    const std::vector<std::string> texts = texts_of(body);
    const auto truncate = body.find("truncate");
    if (truncate != body.end() && !truncate->is_boolean()) throw Refusal{400, "\"truncate\" is neither true nor false"};
    const bool may_cut = truncate != body.end() && truncate->get<bool>();
    if (texts.size() > most_texts_)
      throw Refusal{413,
                    std::to_string(texts.size()) + " texts; at most " + std::to_string(most_texts_) + " at a time"};
    std::vector<Batcher::Tokens> tokens;
    for (const std::string &one : texts) {
      bool cut = false;
      tokens.push_back(tokenizer_.encode(one, static_cast<size_t>(model_.longest), &cut));
      if (cut && !may_cut)
        throw Refusal{413, "text " + std::to_string(tokens.size()) + " has more than the " +
                               std::to_string(model_.longest) +
                               " tokens that the model reads; with \"truncate\": true its begin is taken"};
    }
    const bool taken = batcher_.submit(
        std::move(tokens), [reply](std::vector<Batcher::Embedding> embeddings, const std::string &error) {
          reply(error.empty() ? json_response(200, answer(embeddings)) : error_response(500, error));
        });
    if (!taken) throw Refusal{503, "too many texts wait; try again"};
  }

  std::string health() const {
    return nlohmann::json{
        {"status", "ok"}, {"engine", model_.engine}, {"width", model_.width}, {"longest", model_.longest}}
        .dump();
  }
  std::string stats() const {
    const Batcher::Counts counts = batcher_.counts();
    return nlohmann::json{{"texts", counts.texts},
                          {"batches", counts.batches},
                          {"rejected", counts.rejected},
                          {"waiting", counts.waiting}}
        .dump();
  }

  const size_t most_texts_;  // of a request: as many as may wait
  EncoderModel &model_;
  const WordPiece tokenizer_;
  Batcher batcher_;
};

void serve(const Options &options) {
  const auto model = open_encoder_model(options.model);
  asio::io_context context(1);
  EmbedService service(options, *model);
  HttpLimits limits;
  limits.body_bytes = static_cast<uint64_t>(options.body);
  limits.connections = static_cast<size_t>(options.connections);
  HttpServer server(
      context, asio::ip::tcp::endpoint(asio::ip::make_address(options.host), static_cast<unsigned short>(options.port)),
      limits, [&](const HttpRequest &request, const Reply &reply) { service.handle(request, reply); });
  asio::signal_set signals(context, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code &, int) { server.stop(); });
  std::printf("embed_server: http://%s:%d, %s, %d threads, batches of up to %lld texts\n", options.host.c_str(),
              server.port(), model->engine.c_str(), options.threads, static_cast<long long>(model->most_texts));
  std::fflush(stdout);
  context.run();  // until the last connection has gone
  std::printf("embed_server: stopped\n");
}

// Throws std::invalid_argument.
Options parse(int argc, char **argv) {
  Options options;
  const std::map<std::string, std::string *> texts = {
      {"--vocabulary", &options.vocabulary}, {"--model", &options.model}, {"--host", &options.host}};
  struct Number {
    int *value, least, most;
  };
  const std::map<std::string, Number> numbers = {{"--port", {&options.port, 0, 65535}},
                                                 {"--threads", {&options.threads, 1, 1024}},
                                                 {"--queue", {&options.queue, 1, 1 << 20}},
                                                 {"--connections", {&options.connections, 1, 1 << 16}},
                                                 {"--max-body", {&options.body, 1, 1 << 30}}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto text = texts.find(name);
    const auto number = numbers.find(name);
    if (text == texts.end() && number == numbers.end()) throw std::invalid_argument("unknown option " + name);
    if (++i == argc) throw std::invalid_argument(name + " wants a value");
    const std::string value = argv[i];
    if (text != texts.end()) {
      *text->second = value;
      continue;
    }
    const Number &to = number->second;
    const auto end = std::from_chars(value.data(), value.data() + value.size(), *to.value);
    if (end.ec != std::errc() || end.ptr != value.data() + value.size() || *to.value < to.least || *to.value > to.most)
      throw std::invalid_argument(name + " wants a number from " + std::to_string(to.least) + " to " +
                                  std::to_string(to.most));
  }
  if (options.vocabulary.empty()) throw std::invalid_argument("--vocabulary FILE: the tokenizer's pieces, please");
  if (options.threads == 0) options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return options;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    serve(parse(argc, argv));
  } catch (const std::invalid_argument &error) {
    std::fprintf(stderr, "embed_server: %s\n", error.what());
    return 2;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "embed_server: %s\n", error.what());
    return 1;
  }
  return 0;
}
