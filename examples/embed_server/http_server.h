// HTTP/1.1 by Boost.Beast: one thread reads requests and writes answers, the handler may answer from any thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
using HttpResponse = boost::beast::http::response<boost::beast::http::string_body>;
using Reply = std::function<void(HttpResponse)>;  // called once

// A JSON answer; `{"error": why}` for a failure.
HttpResponse json_response(unsigned status, std::string body);
HttpResponse error_response(unsigned status, const std::string &why);

struct HttpLimits {
  uint64_t body_bytes = 1 << 20;  // longer ones get 413
  size_t connections = 256;       // further ones wait to be accepted
  std::chrono::seconds idle{30};  // a connection without a whole request in this time is closed
};

class HttpServer {
 public:
  using Handler = std::function<void(const HttpRequest &, Reply)>;

  // Listens from here on. Throws boost::system::system_error.
  HttpServer(boost::asio::io_context &context, const boost::asio::ip::tcp::endpoint &at, const HttpLimits &limits,
             Handler handler);
  unsigned short port() const { return acceptor_.local_endpoint().port(); }
  // No more connections; those that wait for a request are closed, the others after their answer. context.run() returns
  // when the last has gone. Called in the context's thread.
  void stop();

 private:
  class Session;
  void accept();
  void end(const std::shared_ptr<Session> &session);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;  // after a failed accept: too many open files
  const HttpLimits limits_;
  const Handler handler_;
  std::unordered_set<std::shared_ptr<Session>> sessions_;
  bool accepting_ = false, stopping_ = false;
};
