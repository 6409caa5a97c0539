#include "proto/support/crc32.h"

#include <isa-l/crc.h>
#include <zlib.h>

namespace espalier {

uint32_t Crc32(uint32_t seed, const void* data, size_t size) {
  return crc32_gzip_refl(seed, static_cast<const unsigned char*>(data), size);
}

uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_size) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_size)));
}

uint32_t Crc32OfTexts(absl::Span<const std::string> texts) {
  uint32_t crc = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) crc = Crc32(crc, "", 1);  // its NUL
    crc = Crc32(crc, texts[i].data(), texts[i].size());
  }
  return crc;
}

}  // namespace espalier
