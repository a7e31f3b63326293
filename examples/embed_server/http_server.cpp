#include "http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

HttpResponse json_response(unsigned status, std::string body) {
  HttpResponse response(static_cast<http::status>(status), 11);
  response.set(http::field::content_type, "application/json");
  response.body() = std::move(body);
  return response;
}

HttpResponse error_response(unsigned status, const std::string &why) {
  return json_response(status,
                       nlohmann::json{{"error", why}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// A connection: one request after the other.
class HttpServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(HttpServer &server, asio::ip::tcp::socket socket) : server_(server), stream_(std::move(socket)) {
    error_code ignored;
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  void read() {
    parser_.emplace();
    parser_->body_limit(server_.limits_.body_bytes);
    stream_.expires_after(server_.limits_.idle);
    reading_ = true;
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, size_t) { self->has_read(error); });
  }
  // The server stops: nothing is lost where no request has begun to arrive.
  void stop() {
    if (reading_ && !parser_->got_some() && buffer_.size() == 0) stream_.close();
  }

 private:
  void has_read(error_code error) {
    reading_ = false;
    if (error == http::error::body_limit)
      return refuse(413, "the request's body has more than " + std::to_string(server_.limits_.body_bytes) + " bytes");
    if (error == http::error::header_limit) return refuse(431, "the request's header is too long");
    if (error == http::error::end_of_stream || error == http::error::partial_message) return end();
    if (error && error.category() == make_error_code(http::error::bad_method).category())
      return refuse(400, "this is no HTTP request: " + error.message());
    if (error) return end();  // the connection is broken, or has been silent too long
    stream_.expires_never();
    const HttpRequest request = parser_->release();
    keep_ = request.keep_alive();
    // The answer may come from another thread, which must not touch the connection: only the context's thread does.
    const auto answer = [self = weak_from_this(),
                         work = asio::make_work_guard(stream_.get_executor())](HttpResponse response) {
      asio::post(work.get_executor(), [self, response = std::move(response)]() mutable {
        if (const auto session = self.lock()) session->write(std::move(response));
      });
    };
    server_.handler_(request, answer);
  }
  void refuse(unsigned status, const std::string &why) {
    keep_ = false;  // where the next request would begin is not known
    write(error_response(status, why));
  }
  void write(HttpResponse response) {
    response_ = std::move(response);
    response_.keep_alive(keep_ && !server_.stopping_);
    response_.prepare_payload();
    stream_.expires_after(server_.limits_.idle);
    http::async_write(stream_, response_, [self = shared_from_this()](error_code error, size_t) {
      if (!error && self->response_.keep_alive() && !self->server_.stopping_) return self->read();
      self->finish();
    });
  }
  // Says the end and reads what the client still sends, a little while: closing at once could take the answer from it.
  void finish() {
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(1));
    drain();
  }
  void drain() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(65536), [self = shared_from_this()](error_code error, size_t) {
      if (error) return self->end();
      self->drain();
    });
  }

  void end() { server_.end(shared_from_this()); }

  HttpServer &server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpResponse response_;
  bool reading_ = false, keep_ = true;
};

HttpServer::HttpServer(asio::io_context &context, const asio::ip::tcp::endpoint &at, const HttpLimits &limits,
                       Handler handler)
    : acceptor_(context), pause_(context), limits_(limits), handler_(std::move(handler)) {
  acceptor_.open(at.protocol());
  acceptor_.set_option(asio::socket_base::reuse_address(true));  // restarting does not wait for old connections
  acceptor_.bind(at);
  acceptor_.listen();
  accept();
}

void HttpServer::accept() {
  if (accepting_ || stopping_ || sessions_.size() >= limits_.connections) return;
  accepting_ = true;
  acceptor_.async_accept([this](error_code error, asio::ip::tcp::socket socket) {
    accepting_ = false;
    if (stopping_) return;
    if (error) {
      pause_.expires_after(std::chrono::milliseconds(100));
      pause_.async_wait([this](error_code) { accept(); });
      return;
    }
    const auto session = std::make_shared<Session>(*this, std::move(socket));
    sessions_.insert(session);
    session->read();
    accept();
  });
}

void HttpServer::end(const std::shared_ptr<Session> &session) {
  sessions_.erase(session);
  accept();
}

void HttpServer::stop() {
  stopping_ = true;
  acceptor_.close();
  pause_.cancel();
  for (const auto &session : sessions_) session->stop();
}
