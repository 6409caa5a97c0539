#include "proto/support/uuid.h"

#include <sys/random.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace espalier {

std::string NewUuid() {
  std::array<uint8_t, 16> b{};
  // 16 bytes are never cut short once the generator is seeded; without it no identity can be given out.
  if (getrandom(b.data(), b.size(), 0) != static_cast<ssize_t>(b.size())) std::abort();
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  std::string out;
  for (size_t i = 0; i < b.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    constexpr char kHex[] = "0123456789abcdef";
    out += kHex[b[i] >> 4];
    out += kHex[b[i] & 15];
  }
  return out;
}

bool IsUuid(absl::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !std::isxdigit(static_cast<unsigned char>(text[i]))) return false;
  }
  return true;
}

}  // namespace espalier
