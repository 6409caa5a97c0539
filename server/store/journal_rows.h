#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "server/store/journal.h"

namespace espalier {

// The rows of a journal that stand: the last of each (kind, run, key), in the order in which they were written. Not
// thread-safe.
class JournalRows {
 public:
  // `sequence` grows from row to row.
  void Apply(int64_t sequence, const JournalRecord& record);
  std::vector<JournalRecord> InOrder() const;
  size_t size() const { return rows_.size(); }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // kind, run, key
  struct Row {
    int64_t sequence;
    std::string value;
  };
  std::map<Key, Row> rows_;
};

}  // namespace espalier
