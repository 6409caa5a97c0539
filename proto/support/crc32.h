#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace espalier {

// CRC-32 as zlib computes it (polynomial 0x04C11DB7, reflected): the one checksum of files, chunks and journal rows.
// `seed` is the CRC of what came before, 0 at the start.
uint32_t Crc32(uint32_t seed, const void* data, size_t size);

// CRC of the concatenation of two pieces, from the CRC of each and the length of the second.
uint32_t Crc32Combine(uint32_t first, uint32_t second, uint64_t second_size);

// CRC of texts with a NUL byte between them, which no text has: where one ends and the next begins is covered too.
uint32_t Crc32OfTexts(absl::Span<const std::string> texts);

}  // namespace espalier
