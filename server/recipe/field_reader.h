#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/recipe/problems.h"
#include "server/recipe/rational.h"
#include "server/recipe/recipe.h"
#include "server/recipe/variables.h"
#include "server/recipe/yaml_node.h"

namespace espalier {

// Reads the fields of one mapping, each with its type; mistakes (RECIPE_INVALID) go to the problems. A field that is
// absent, or null, or wrong, is nullopt. Not thread-safe.
class FieldReader {
 public:
  // All must outlive the reader. REQUIRES: node is a mapping.
  FieldReader(const YamlNode& node, std::string path, Variables& variables, Problems& problems)
      : node_(node), path_(std::move(path)), variables_(variables), problems_(problems) {}

  // Null says the same as nothing.
  const YamlNode* Find(absl::string_view name) const;
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }
  // Of the field's value; of the mapping where it is absent.
  Mark MarkOf(absl::string_view name) const;
  std::string FieldOf(absl::string_view name) const;

  std::optional<Rational> Number(absl::string_view name);
  // A share from 0 to 1.
  std::optional<Rational> Sparsity(absl::string_view name);
  std::optional<int64_t> Whole(absl::string_view name, int64_t least, int64_t most);
  std::optional<bool> Bool(absl::string_view name);
  std::optional<std::string> Text(absl::string_view name);
  // One of `values`.
  std::optional<std::string> Choice(absl::string_view name, const std::vector<std::string>& values);
  // A text or a list of texts, none empty.
  std::vector<TargetEntry> Texts(absl::string_view name);
  // Epochs as a number, or "120steps"; -1 where `may_be_open`.
  std::optional<RecipeTime> Time(absl::string_view name, bool may_be_open);

  // The same of a value that is not a field of its own.
  std::optional<Rational> SparsityOf(const YamlNode& node, const std::string& field);
  std::optional<RecipeTime> TimeOf(const YamlNode& node, const std::string& field, bool may_be_open);

  // Reports every key that is not in `names`, with the nearest name. Returns the suggestions made.
  std::vector<std::string> RefuseOthers(const std::vector<std::string>& names, absl::string_view of);

  void Add(absl::string_view name, absl::string_view what, absl::string_view suggestion = "") {
    problems_.Add(MarkOf(name), FieldOf(name), what, suggestion);
  }

 private:
  std::optional<Scalar> ScalarOf(const YamlNode& node, const std::string& field, absl::string_view wanted);
  std::optional<Rational> NumberOf(const YamlNode& node, const std::string& field);
  std::optional<std::string> TextOf(const YamlNode& node, const std::string& field);

  const YamlNode& node_;
  const std::string path_;
  Variables& variables_;
  Problems& problems_;
};

}  // namespace espalier
