// Asks a server on this machine for embeddings as fast as it answers, and says how fast that was.
//
//   load PORT SECONDS CONNECTIONS TEXTS.txt      (one text a line; a request has one text)
//
// Prints one JSON line: requests, failures, seconds, rate (requests a second), p50, p99 and max (milliseconds).

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

struct Result {
  std::vector<float> milliseconds;
  size_t failures = 0;
};

// One connection, one request after the other until `end`.
Result ask(unsigned short port, const std::vector<std::string> &bodies, size_t first, Clock::time_point end) {
  Result result;
  try {
    asio::io_context context;
    asio::ip::tcp::socket socket(context);
    socket.connect({asio::ip::address_v4::loopback(), port});
    socket.set_option(asio::ip::tcp::no_delay(true));
    boost::beast::flat_buffer buffer;
    http::request<http::string_body> request(http::verb::post, "/embed", 11);
    request.set(http::field::host, "localhost");
    request.set(http::field::content_type, "application/json");
    for (size_t i = first; Clock::now() < end; ++i) {
      request.body() = bodies[i % bodies.size()];
      request.prepare_payload();
      const auto begin = Clock::now();
      http::write(socket, request);
      http::response<http::string_body> response;
      http::read(socket, buffer, response);
      result.milliseconds.push_back(std::chrono::duration<float, std::milli>(Clock::now() - begin).count());
      result.failures += response.result() != http::status::ok;
    }
  } catch (const std::exception &error) {
    std::fprintf(stderr, "load: %s\n", error.what());
    ++result.failures;
  }
  return result;
}

std::vector<std::string> read_bodies(const char *path) {
  std::vector<std::string> bodies;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) bodies.push_back(nlohmann::json{{"inputs", line}}.dump());
  return bodies;
}

}  // namespace

int main(int argc, char **argv) {
  const int port = argc == 5 ? std::atoi(argv[1]) : 0;
  const double seconds = argc == 5 ? std::atof(argv[2]) : 0;
  const int connections = argc == 5 ? std::atoi(argv[3]) : 0;
  if (port < 1 || port > 65535 || seconds <= 0 || seconds > 3600 || connections < 1 || connections > 1000) {
    std::fprintf(stderr, "usage: load PORT SECONDS CONNECTIONS TEXTS.txt\n");
    return 2;
  }
  const std::vector<std::string> bodies = read_bodies(argv[4]);
  if (bodies.empty()) {
    std::fprintf(stderr, "load: no texts in %s\n", argv[4]);
    return 2;
  }
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<Result> results(static_cast<size_t>(connections));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] { results[i] = ask(static_cast<unsigned short>(port), bodies, i * 7919, end); });
  for (std::thread &thread : threads) thread.join();
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<float> all;
  size_t failures = 0;
  for (const Result &result : results) {
    all.insert(all.end(), result.milliseconds.begin(), result.milliseconds.end());
    failures += result.failures;
  }
  std::sort(all.begin(), all.end());
  const auto at = [&](double part) {
    return all.empty() ? 0.0
                       : static_cast<double>(all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))]);
  };
  std::printf(
      "{\"requests\": %zu, \"failures\": %zu, \"seconds\": %.3f, \"rate\": %.1f, \"p50\": %.3f, \"p99\": %.3f, "
      "\"max\": %.3f}\n",
      all.size(), failures, took, static_cast<double>(all.size()) / took, at(0.5), at(0.99), at(1));
  return failures || all.empty() ? 1 : 0;
}
