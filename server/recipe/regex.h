#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

// PCRE2's types, whose header needs a macro set first; only regex.cc includes it.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace espalier {

// A regular expression that must match at the start of a name and may end before the name does, as Python's `re.match`.
// Its work on one name is bounded. Not thread-safe.
class Regex {
 public:
  enum class Result { kNo, kYes, kTooCostly };

  // Empty `error` on success.
  Regex(absl::string_view pattern, std::string& error);

  Result Match(absl::string_view name) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
};

}  // namespace espalier
