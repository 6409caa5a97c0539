#pragma once

// The two macros that Debian's Abseil does not have yet, spelled like Abseil's own under our prefix.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr`, an absl::Status, is not OK.
#define ESPALIER_RETURN_IF_ERROR(expr)                                                             \
  do {                                                                                             \
    if (::absl::Status espalier_status_ = (expr); !espalier_status_.ok()) return espalier_status_; \
  } while (false)

#define ESPALIER_CONCAT_INNER_(a, b) a##b
#define ESPALIER_CONCAT_(a, b) ESPALIER_CONCAT_INNER_(a, b)

// `lhs` is assigned the value of `expr`, an absl::StatusOr; returns from the enclosing function when it has none.
#define ESPALIER_ASSIGN_OR_RETURN(lhs, expr) \
  ESPALIER_ASSIGN_OR_RETURN_(ESPALIER_CONCAT_(espalier_or_, __LINE__), lhs, expr)
#define ESPALIER_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return std::move(tmp).status();   \
  lhs = *std::move(tmp)
