#include "server/recipe/scalar.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace espalier {
namespace {

bool IsNotFinite(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  return lower == ".nan" || lower == ".inf" || lower == "-.inf" || lower == "+.inf" || lower == "nan" ||
         lower == "inf" || lower == "-inf" || lower == "+inf" || lower == "infinity";
}

}  // namespace

Scalar Scalar::OfNumber(Rational number) {
  Scalar out;
  out.kind = Kind::kNumber;
  out.text = number.ToString();
  out.number = std::move(number);
  return out;
}

Scalar Scalar::OfText(std::string text) {
  Scalar out;
  out.kind = Kind::kText;
  out.text = std::move(text);
  return out;
}

std::string Scalar::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "empty";
    case Kind::kBool:
    case Kind::kNumber:
      return Quote(text);
    case Kind::kNotFinite:
      return absl::StrCat(Quote(text), ", which is not finite");
    case Kind::kText:
      return quoted ? absl::StrCat(Quote(text), " in quotes, which is text") : absl::StrCat("the text ", Quote(text));
  }
  return "empty";
}

Scalar ReadScalar(const YamlNode& node) {
  Scalar out;
  if (!node.scalar()) return out;
  out.text = node.text;
  out.quoted = node.quoted;
  out.kind = Scalar::Kind::kText;
  if (node.quoted) return out;
  if (node.text == "true" || node.text == "True" || node.text == "TRUE") {
    out.kind = Scalar::Kind::kBool;
    out.boolean = true;
  } else if (node.text == "false" || node.text == "False" || node.text == "FALSE") {
    out.kind = Scalar::Kind::kBool;
  } else if (const std::optional<Rational> number = Rational::Parse(node.text)) {
    out.kind = Scalar::Kind::kNumber;
    out.number = *number;
  } else if (IsNotFinite(node.text)) {
    out.kind = Scalar::Kind::kNotFinite;
  }
  return out;
}

}  // namespace espalier
