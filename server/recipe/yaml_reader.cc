#include "server/recipe/yaml_reader.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace espalier {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxExpandedBytes = size_t{16} << 20;
// What a value costs beside its text when the size of an expansion is reckoned.
constexpr size_t kNodeBytes = 64;
constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

Mark MarkOf(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

// Thrown out of the parser's callbacks; never leaves this file.
struct Refused {
  Mark mark;
  std::string what;
};

// Builds a YamlNode from the parser's events.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(Problems& problems) : problems_(problems) {}

  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    node.mark = MarkOf(mark);
    Finish(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) throw Refused{MarkOf(mark), "the alias stands inside what it names"};
    Charge(known->second.bytes, MarkOf(mark));
    YamlNode node = known->second.node;
    node.mark = MarkOf(mark);
    Attach(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseTag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.mark = MarkOf(mark);
    node.text = value;
    node.quoted = tag == "!";
    Finish(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kMapping, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A sequence or mapping whose end has not come.
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    size_t bytes_before = 0;
    bool has_key = false;
    absl::flat_hash_set<std::string> seen;
  };
  struct Anchored {
    YamlNode node;
    size_t bytes = 0;
  };

  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw Refused{MarkOf(mark),
                  absl::StrCat("the YAML tag ", Quote(tag),
                               " is not read; write a modifier as a key with its fields below it, without `!`")};
  }

  void Charge(size_t bytes, Mark mark) {
    bytes_ += bytes;
    if (bytes_ > kMaxExpandedBytes) throw Refused{mark, "too many values (aliases counted as often as they are used)"};
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    RefuseTag(mark, tag);
    if (frames_.size() >= kMaxDepth) throw Refused{MarkOf(mark), absl::StrCat("nested more than ", kMaxDepth, " deep")};
    Frame frame;
    frame.node.kind = kind;
    frame.node.mark = MarkOf(mark);
    frame.anchor = anchor;
    frame.bytes_before = bytes_;
    Charge(kNodeBytes, frame.node.mark);
    frames_.push_back(std::move(frame));
  }

  void Close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    Remember(frame.node, frame.anchor, bytes_ - frame.bytes_before);
    Attach(std::move(frame.node));
  }

  // A scalar or null.
  void Finish(YamlNode node, YAML::anchor_t anchor) {
    const size_t bytes = kNodeBytes + node.text.size();
    Charge(bytes, node.mark);
    Remember(node, anchor, bytes);
    Attach(std::move(node));
  }

  void Remember(const YamlNode& node, YAML::anchor_t anchor, size_t bytes) {
    if (anchor == YAML::NullAnchor) return;
    Charge(bytes, node.mark);  // the copy kept for aliases
    anchors_[anchor] = {node, bytes};
  }

  void Attach(YamlNode node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.sequence() || frame.has_key) {
      frame.has_key = false;
      frame.node.children.push_back(std::move(node));
      return;
    }
    AddKey(frame, std::move(node));
  }

  void AddKey(Frame& frame, YamlNode key) {
    if (!key.scalar()) throw Refused{key.mark, absl::StrCat("a key is a single word, this one is ", key.KindName())};
    if (key.text == "<<" && !key.quoted) {
      throw Refused{key.mark,
                    "merge keys (`<<`) are not read; write the fields out, or use an alias for a whole value"};
    }
    if (!frame.seen.insert(key.text).second) {
      problems_.Add(key.mark, key.text, "this key comes twice in one mapping");
    }
    frame.has_key = true;
    frame.node.key_marks.push_back(key.mark);
    frame.node.keys.push_back(std::move(key.text));
  }

  Problems& problems_;
  std::vector<Frame> frames_;
  absl::flat_hash_map<YAML::anchor_t, Anchored> anchors_;
  size_t bytes_ = 0;
  YamlNode root_;
};

// Bytes of the UTF-8 character at the front; 0 when it is none.
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

// The parser would take some of these for the end of the text.
bool CheckCharacters(absl::string_view text, Problems& problems) {
  Mark mark{1, 1};
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      problems.Add(mark, "", absl::StrFormat("the byte 0x%02x is not UTF-8; save the recipe as UTF-8", byte));
      return false;
    }
    if (absl::ascii_iscntrl(byte) && byte != '\t' && byte != '\n' && byte != '\r') {
      problems.Add(mark, "", absl::StrFormat("the control character 0x%02x does not belong into a recipe", byte));
      return false;
    }
    mark = byte == '\n' ? Mark{mark.line + 1, 1} : Mark{mark.line, mark.column + 1};
    text.remove_prefix(length);
  }
  return true;
}

bool IsMarker(absl::string_view line, absl::string_view marker) {
  return absl::ConsumePrefix(&line, marker) && (line.empty() || line[0] == ' ' || line[0] == '\t');
}

// Finds a second document before the parser stumbles over its text (often it is the Markdown below a front matter).
bool CheckOneDocument(absl::string_view text, Problems& problems) {
  bool content = false;
  bool marked = false;
  bool ended = false;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    absl::string_view line = absl::StripSuffix(text.substr(0, end), "\r");
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty() || stripped[0] == '#') continue;
    if (!content && !marked && stripped == "+++") {
      problems.Add({number, 1}, "", "TOML front matter (+++) is not read; a recipe is YAML or JSON");
      return false;
    }
    const bool marker = IsMarker(line, "---");
    if (ended || (marker && (content || marked))) {
      problems.Add({number, 1}, "",
                   "a second YAML document starts here and a recipe is one; of a file with front matter keep only the "
                   "part between the two `---` lines");
      return false;
    }
    if (IsMarker(line, "...")) {
      ended = true;
    } else if (marker) {
      marked = true;
    } else if (line[0] != '%') {
      content = true;
    }
  }
  return true;
}

}  // namespace

std::optional<YamlNode> ReadYaml(absl::string_view text, Problems& problems) {
  if (text.size() > kMaxRecipeBytes) {
    problems.Add({}, "", absl::StrCat("the recipe has ", text.size(), " bytes, more than ", kMaxRecipeBytes));
    return std::nullopt;
  }
  text = absl::StripPrefix(text, kByteOrderMark);
  if (!CheckCharacters(text, problems) || !CheckOneDocument(text, problems)) return std::nullopt;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Builder builder(problems);
    if (!parser.HandleNextDocument(builder)) {
      problems.Add({}, "", "the recipe is empty");
      return std::nullopt;
    }
    Builder rest(problems);
    if (parser.HandleNextDocument(rest)) {
      problems.Add({}, "", "not YAML: the text goes on after the end of the recipe");
      return std::nullopt;
    }
    return builder.TakeRoot();
  } catch (const Refused& refused) {
    problems.Add(refused.mark, "", refused.what);
  } catch (const YAML::Exception& error) {
    problems.Add(error.mark.is_null() ? Mark{} : MarkOf(error.mark), "", absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    problems.Add({}, "", absl::StrCat("not YAML: ", error.what()));
  }
  return std::nullopt;
}

}  // namespace espalier
