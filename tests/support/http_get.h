#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace espalier::testing {

// The whole answer of an HTTP/1.1 server at 127.0.0.1:port, head and body, until it closes the connection.
inline std::string HttpAsk(const std::string& address, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
  std::string answer;
  if (connect(fd, static_cast<sockaddr*>(static_cast<void*>(&to)), sizeof to) != 0) {
    ADD_FAILURE() << "nobody listens at " << address;
  } else if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t got; (got = recv(fd, buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return answer;
}

inline std::string HttpGet(const std::string& address, const std::string& path) {
  return HttpAsk(address, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

}  // namespace espalier::testing
