#include "proto/metrics/http_server.h"

#include "proto/support/errors.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace espalier {
namespace {

using testing::HasReason;
using ::testing::HasSubstr;
using testing::HttpAsk;
using testing::HttpGet;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  static std::unique_ptr<HttpServer> Serve(const std::string& address = "127.0.0.1:0") {
    auto server = HttpServer::Listen(
        address, {{"/", [](absl::string_view query) { return HttpReply{.body = "home " + std::string(query)}; }},
                  {"/busy", [](absl::string_view) { return HttpReply{.status = 503, .body = "later"}; }}});
    EXPECT_OK(server.status());
    return *std::move(server);
  }
  const std::unique_ptr<HttpServer> server_ = Serve();
};

TEST_F(HttpServerTest, AnswersItsPages) {
  const std::string answer = HttpGet(server_->address(), "/?run=a%20b");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 14\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Security-Policy: default-src 'none'"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nhome run=a%20b"));
  EXPECT_THAT(HttpGet(server_->address(), "/busy"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST_F(HttpServerTest, AnswersNothingElse) {
  EXPECT_THAT(HttpGet(server_->address(), "/etc/passwd"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(HttpGet(server_->address(), "/../../etc/passwd"), Not(HasSubstr("root:")));
  const std::string post = HttpAsk(server_->address(), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  const std::string head = HttpAsk(server_->address(), "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, GarbageEndsItsConnectionAlone) {
  HttpAsk(server_->address(), std::string("\x16\x03\x01\x02\x00\x01\xfc\x00\r\n\r\n", 12));
  HttpAsk(server_->address(), "GET / HTTP/1.1\r\n" + std::string(1 << 16, 'x') + "\r\n\r\n");
  EXPECT_THAT(HttpGet(server_->address(), "/"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, ATakenAddressIsNamed) {
  const auto second = HttpServer::Listen(server_->address(), {});
  EXPECT_THAT(second, HasReason(v1::ERROR_REASON_CANNOT_BIND, HasSubstr(server_->address())));
  EXPECT_EQ(MetadataOf(second.status(), "address"), server_->address());
}

}  // namespace
}  // namespace espalier
