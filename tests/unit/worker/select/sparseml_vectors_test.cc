// Masks that the peer's own functions made.

#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/select/reference.h"

namespace espalier::testing {
namespace {

using nlohmann::json;

template <class T>
std::vector<T> Flat(const json& rows) {
  std::vector<T> values;
  for (const json& row : rows) {
    for (const json& value : row) values.push_back(value.get<T>());
  }
  return values;
}

std::string MaskText(const json& rows) {
  std::string text;
  for (const int keep : Flat<int>(rows)) text += keep != 0 ? '1' : '0';
  return text;
}

TEST(SparseMlVectors, UnstructuredByItsRule) {
  const json vectors = SparsemlVectors();
  ASSERT_TRUE(vectors.is_object());
  const json& unstructured = vectors.at("unstructured_modern");
  const std::vector<double> scores = Flat<double>(unstructured.at("scores"));
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {2, 4}, scores);
  ASSERT_EQ(unstructured.at("cases").size(), 8U);
  for (const json& item : unstructured.at("cases")) {
    // k = trunc(s * n)
    const auto k = static_cast<int64_t>(item.at("sparsity").get<double>() * static_cast<double>(scores.size()));
    v1::UpdateSpec spec = MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {k});
    spec.set_rule(v1::SELECTION_RULE_SPARSEML);
    const Joined joined = SelectOn(2, spec, {tensor});
    ASSERT_OK(joined.status);
    EXPECT_EQ(ToString(joined.masks[0]), MaskText(item.at("mask"))) << item.dump();
  }
}

// The peer's older rule counts exactly; where it breaks ties as we do the masks are the same.
TEST(SparseMlVectors, ExactCountsOfItsOlderRule) {
  const json vectors = SparsemlVectors();
  ASSERT_TRUE(vectors.is_object());
  const json& unstructured = vectors.at("unstructured_legacy");
  const Tensor tensor = MakeTensor("w", v1::DTYPE_F32, {2, 4}, Flat<double>(unstructured.at("scores")));
  for (const json& item : unstructured.at("cases")) {
    const std::string expected = MaskText(item.at("mask"));
    const auto k = std::count(expected.begin(), expected.end(), '0');
    const Joined joined = SelectOn(2, MakeSpec(v1::SELECTION_METHOD_MAGNITUDE, {tensor}, {k}), {tensor});
    ASSERT_OK(joined.status);
    EXPECT_EQ(joined.masks[0].CountPruned(), k);
    EXPECT_EQ(ToString(joined.masks[0]), expected) << item.dump();
  }
  const json& global = vectors.at("global_legacy");
  const std::vector<double> scores = Flat<double>(global.at("scores"));
  const Tensor a = MakeTensor("a", v1::DTYPE_F32, {4}, {scores.begin(), scores.begin() + 4});
  const Tensor b = MakeTensor("b", v1::DTYPE_F32, {4}, {scores.begin() + 4, scores.end()});
  const Joined joined = SelectOn(2, MakeSpec(v1::SELECTION_METHOD_GLOBAL_MAGNITUDE, {a, b}, {4}), {a, b});
  ASSERT_OK(joined.status);
  EXPECT_EQ(ToString(joined.masks[0]) + ToString(joined.masks[1]), MaskText(global.at("masks")));
}

}  // namespace
}  // namespace espalier::testing
