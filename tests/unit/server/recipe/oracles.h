#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace espalier::testing {

// sparseml_vectors.json: inputs and outputs of SparseML's own functions.
inline nlohmann::json SparsemlVectors() {
  const char* given = std::getenv("ESPALIER_ORACLES");
  const std::string path = std::string(given != nullptr ? given : ESPALIER_DEFAULT_ORACLES) + "/sparseml_vectors.json";
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path << " is missing: set ESPALIER_ORACLES to the folder with the oracles";
  return nlohmann::json::parse(file);
}

}  // namespace espalier::testing
