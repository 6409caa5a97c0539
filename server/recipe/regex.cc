#include "server/recipe/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace espalier {
namespace {

constexpr size_t kMaxPattern = 4096;
// Steps of the matcher, and kibibytes of its heap, for one name. Ordinary patterns need some hundreds.
constexpr uint32_t kMatchLimit = 20'000;
constexpr uint32_t kHeapLimit = 4096;

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  const int length = pcre2_get_error_message(code, buffer.data(), buffer.size());
  return length < 0 ? absl::StrCat("error ", code) : std::string(buffer.begin(), buffer.begin() + length);
}

// PCRE2 takes unsigned characters.
PCRE2_SPTR Units(absl::string_view text) {
  static constexpr PCRE2_UCHAR kEmpty = 0;
  // Reading char as unsigned char is what the language allows.
  return text.empty() ? &kEmpty : reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}
void Regex::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}
void Regex::Free::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}

Regex::Regex(absl::string_view pattern, std::string& error) {
  if (pattern.size() > kMaxPattern) {
    error = absl::StrCat("it has more than ", kMaxPattern, " bytes");
    return;
  }
  int code = 0;
  PCRE2_SIZE offset = 0;
  constexpr uint32_t kOptions = PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  code_.reset(pcre2_compile(Units(pattern), pattern.size(), kOptions, &code, &offset, nullptr));
  if (code_ == nullptr) {
    error = absl::StrCat(ErrorText(code), ", at character ", offset + 1, " of the pattern");
    return;
  }
  data_.reset(pcre2_match_data_create(1, nullptr));
  context_.reset(pcre2_match_context_create(nullptr));
  if (data_ == nullptr || context_ == nullptr) {
    error = "out of memory";
    return;
  }
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  pcre2_set_heap_limit(context_.get(), kHeapLimit);
}

Regex::Result Regex::Match(absl::string_view name) const {
  const int code = pcre2_match(code_.get(), Units(name), name.size(), 0, 0, data_.get(), context_.get());
  if (code >= 0) return Result::kYes;
  // A name that is not UTF-8 matches nothing; every other failure is a limit.
  const bool no = code == PCRE2_ERROR_NOMATCH || (code <= PCRE2_ERROR_UTF8_ERR1 && code >= PCRE2_ERROR_UTF8_ERR21);
  return no ? Result::kNo : Result::kTooCostly;
}

}  // namespace espalier
