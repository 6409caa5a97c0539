#include "proto/metrics/http_server.h"

#include <civetweb.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/errors.h"

namespace espalier {
namespace {

const char* Phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

// Pages hold no script and load nothing: a browser is told to keep it so.
constexpr char kHeaders[] =
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors "
    "'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n";

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(const std::string& address,
                                                               std::map<std::string, Handler> pages) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(pages)));
  // Connections are closed after one answer, so that an idle client holds no thread.
  const char* options[] = {"listening_ports",
                           address.c_str(),
                           "num_threads",
                           "4",
                           "request_timeout_ms",
                           "10000",
                           "linger_timeout_ms",
                           "0",
                           "enable_keep_alive",
                           "no",
                           nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &HttpServer::OnRequest;
  // It would write to standard error; that it cannot listen is said below.
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  server->context_ = mg_start(&callbacks, server.get(), options);
  mg_server_port port{};
  if (server->context_ == nullptr || mg_get_server_ports(server->context_, 1, &port) != 1) {
    return MakeError(v1::ERROR_REASON_CANNOT_BIND,
                     absl::StrCat("cannot serve metrics at ", address,
                                  ": it is in use or no address of this machine; choose another with --metrics-listen, "
                                  "or 'off'"),
                     {{"address", address}});
  }
  server->address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port.port);
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
}

HttpReply HttpServer::Answer(absl::string_view method, const std::string& path, absl::string_view query) const {
  if (method != "GET" && method != "HEAD") return {.status = 405, .body = "only GET and HEAD are answered\n"};
  const auto page = pages_.find(path);
  if (page != pages_.end()) return page->second(query);
  HttpReply reply{.status = 404, .body = "no such page; there are:\n"};
  for (const auto& [name, handler] : pages_) absl::StrAppend(&reply.body, name, "\n");
  return reply;
}

int HttpServer::OnRequest(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const auto* server = static_cast<const HttpServer*>(request.user_data);
  const auto text = [](const char* value) { return value == nullptr ? "" : value; };
  const absl::string_view method = text(request.request_method);
  const HttpReply reply = server->Answer(method, text(request.local_uri), text(request.query_string));
  const std::string head =
      absl::StrCat("HTTP/1.1 ", reply.status, " ", Phrase(reply.status), "\r\nContent-Type: ", reply.content_type,
                   "\r\nContent-Length: ", reply.body.size(), "\r\n", kHeaders, "\r\n");
  mg_write(connection, head.data(), head.size());
  if (method != "HEAD") mg_write(connection, reply.body.data(), reply.body.size());
  return reply.status;
}

}  // namespace espalier
