#include "worker/checkpoint/strict_json.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/checkpoint/checkpoint_error.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxDepth = 64;

// Thrown through the parser, which has no other way to stop, and caught below.
struct Refused {
  std::string what;
};

// Sees what the parser sees.
class Watcher {
 public:
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      keys_.emplace_back();
      if (keys_.size() > kMaxDepth) throw Refused{absl::StrCat("is nested more than ", kMaxDepth, " deep")};
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw Refused{absl::StrCat("has the key \"", absl::string_view(key).substr(0, 300), "\" twice")};
      }
    }
    return true;
  }

 private:
  std::vector<absl::flat_hash_set<std::string>> keys_;
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(absl::string_view text, absl::string_view file) {
  // The parser would take a NUL for the end.
  if (absl::StrContains(text, '\0')) return CheckpointInvalid(file, "", "is not valid JSON: it holds a NUL");
  try {
    Watcher watcher;
    Json out = Json::parse(text.begin(), text.end(), std::ref(watcher));
    if (!out.is_object()) return CheckpointInvalid(file, "", "is JSON but not an object");
    return out;
  } catch (const Refused& refused) {
    return CheckpointInvalid(file, "", refused.what);
  } catch (const Json::exception& error) {
    return CheckpointInvalid(file, "",
                             absl::StrCat("is not valid JSON: ", absl::string_view(error.what()).substr(0, 300)));
  }
}

}  // namespace espalier
