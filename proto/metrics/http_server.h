#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct mg_connection;
struct mg_context;

namespace espalier {

// Value of --metrics-listen for no server.
inline constexpr char kMetricsOff[] = "off";

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Pages for people and for Prometheus, on threads of its own: GET and HEAD, nothing else, nothing from the client but the
// path and the query. Thread-safe.
class HttpServer {
 public:
  // Answers one path; called by several threads at once. `query` is what stands after '?', still encoded.
  using Handler = std::function<HttpReply(absl::string_view query)>;

  // Serves at host:port (port 0 takes a free one) until it is destroyed. CANNOT_BIND (address).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(const std::string& address,
                                                            std::map<std::string, Handler> pages);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it really listens.
  const std::string& address() const { return address_; }

 private:
  explicit HttpServer(std::map<std::string, Handler> pages) : pages_(std::move(pages)) {}

  static int OnRequest(mg_connection* connection);
  HttpReply Answer(absl::string_view method, const std::string& path, absl::string_view query) const;

  const std::map<std::string, Handler> pages_;
  std::string address_;
  mg_context* context_ = nullptr;
};

}  // namespace espalier
