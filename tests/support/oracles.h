#pragma once

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace espalier::testing {

// sparseml_vectors.json: inputs and outputs of SparseML's own functions.
inline nlohmann::json SparsemlVectors() {
  const std::string path = ESPALIER_ORACLES "/sparseml_vectors.json";
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open())
      << path
      << " is missing: configure with -DESPALIER_ORACLES=, or with that variable of the environment, naming its folder";
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

}  // namespace espalier::testing
