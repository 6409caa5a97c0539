#pragma once

// Selection by sorting, written from the documented order alone.

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "espalier/v1/worker_service.pb.h"
#include "worker/mask/bitmask.h"
#include "worker/select/select.h"

namespace espalier::testing {

// A full parameter.
struct Tensor {
  v1::Parameter parameter;
  std::vector<std::byte> bytes;
  std::optional<Bitmask> current;

  int64_t size() const;
  double At(int64_t i) const;  // the value, decoded by arithmetic
  bool Masked(int64_t i) const { return current.has_value() && !current->Keeps(i); }
};

// A LINEAR parameter (input dimension 1 where it has two) of zeros.
Tensor MakeTensor(const std::string& name, v1::Dtype dtype, const std::vector<int64_t>& shape);

// Stores the values, which the dtype must be able to hold.
Tensor MakeTensor(const std::string& name, v1::Dtype dtype, const std::vector<int64_t>& shape,
                  const std::vector<double>& values);

// Few distinct magnitudes of both signs, zeros of both signs, and, when asked, infinities and NaNs of several payloads.
void FillWithTies(Tensor& tensor, std::mt19937_64& random, bool specials);

// Random bits, but no NaN.
void FillWithBits(Tensor& tensor, std::mt19937_64& random);

// Stores +0.0 where the mask prunes.
void ApplyTo(Tensor& tensor, const Bitmask& mask);

v1::UpdateSpec MakeSpec(v1::SelectionMethod method, const std::vector<Tensor>& tensors,
                        const std::vector<int64_t>& targets, bool monotone = true);

// Masks of the full parameters.
std::vector<Bitmask> ReferenceMasks(const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors);

// Zeros and masked elements.
int64_t ZeroOrMasked(const Tensor& tensor);

// Counts and selects on `world_size` ranks as threads, cut by rows, or as `cuts` says (first elements of ranks 1, 2, ... of every
// parameter); joins the masks. Fails the test where ranks disagree.
struct Joined {
  absl::Status status;
  std::vector<Bitmask> masks;
  std::vector<int64_t> counted;  // by CountForUpdate, over all ranks
  std::vector<int64_t> pruned;
  int64_t pruned_nans = 0;
  uint64_t hash = 0;
  int64_t bytes_sent = 0;  // by rank 0
};
Joined SelectOn(int world_size, const v1::UpdateSpec& spec, const std::vector<Tensor>& tensors,
                const std::vector<std::vector<int64_t>>& cuts = {});

std::string ToString(const Bitmask& mask);

}  // namespace espalier::testing
