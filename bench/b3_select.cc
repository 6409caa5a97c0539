// B3: exact selection of half of each parameter, one rank, one thread: on the linears of a checkpoint, whose weights are
// full of ties, and on normal weights. Against std::nth_element, which finds the threshold alone, torch.kthvalue where
// this build has LibTorch, and three streaming reads of the same bytes.
//
//   b3_select MODEL

#include <cstdio>

#include "bench/measure.h"
#include "bench/select_model.h"
#include "bench/shard.h"
#ifdef ESPALIER_BENCH_KTHVALUE
#include "bench/b3_kthvalue.h"
#endif
#include "worker/checkpoint/load.h"
#include "worker/collective/single_process.h"

namespace espalier::bench {
namespace {

uint64_t SumWords(absl::Span<const std::byte> bytes) {
  uint64_t sums[4] = {};
  size_t i = 0;
  for (; i + sizeof(sums) <= bytes.size(); i += sizeof(sums)) {
    uint64_t words[4];
    std::memcpy(words, bytes.data() + i, sizeof(words));
    for (int j = 0; j < 4; ++j) sums[j] += words[j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

void Run(const std::string& what, const v1::UpdateSpec& spec, const std::vector<SelectInput>& inputs) {
  SingleProcess group;
  std::vector<uint32_t> work;
  const auto each = [&](auto body) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Use(body(inputs[i].parameter->dtype(), inputs[i].values, spec.targets(static_cast<int>(i))));
    }
  };
  // Two programs of bodies: what is slow runs fewer times.
  const std::vector<double> fast = MedianSeconds({[&] {
                                                    const auto selection = Select(spec, inputs, group, 1);
                                                    if (!selection.ok()) std::abort();
                                                    Use(*selection);
                                                  },
                                                  [&] {
                                                    for (int pass = 0; pass < 3; ++pass) {
                                                      for (const SelectInput& input : inputs)
                                                        Use(SumWords(input.values));
                                                    }
                                                  }});
  std::vector<std::function<void()>> bodies = {
      [&] { each([&](v1::Dtype dtype, auto bytes, int64_t k) { return KthByNthElement(dtype, bytes, k, work); }); }};
#ifdef ESPALIER_BENCH_KTHVALUE
  bodies.push_back([&] { each([](v1::Dtype dtype, auto bytes, int64_t k) { return KthByTorch(dtype, bytes, k); }); });
#endif
  const std::vector<double> slow = MedianSeconds(bodies, 3);
  PrintRatio("B3", "select-" + what + "-vs-nth_element", slow[0], fast[0], 2);
#ifdef ESPALIER_BENCH_KTHVALUE
  PrintRatio("B3", "select-" + what + "-vs-kthvalue", slow[1], fast[0], 10);
#endif
  PrintRatio("B3", "select-" + what + "-vs-3-reads", fast[1], fast[0], 0.5);
}

void RunNormal(v1::Dtype dtype, int64_t count) {
  const std::shared_ptr<Storage> shard = NormalShard(dtype, count);
  v1::Parameter parameter;
  parameter.set_name("normal");
  parameter.set_dtype(dtype);
  parameter.add_shape(count);
  v1::UpdateSpec spec;
  spec.set_method(v1::SELECTION_METHOD_MAGNITUDE);
  spec.set_monotone(true);
  spec.add_parameters(parameter.name());
  spec.add_targets(count / 2);
  Run("normal-" + DtypeName(dtype) + "-" + std::to_string(shard->bytes().size() >> 20) + "MiB", spec,
      {{&parameter, {0, count}, shard->bytes(), nullptr}});
}

int Main(const std::string& model) {
  for (const v1::Dtype dtype : {v1::DTYPE_BF16, v1::DTYPE_F32}) {
    for (const int64_t elements : {int64_t{1} << 22, int64_t{1} << 25}) RunNormal(dtype, elements);
  }
  const auto checkpoint = Checkpoint::Open(model);
  const auto shards = checkpoint.ok() ? LoadShards(*checkpoint, 0, 1) : checkpoint.status();
  if (!shards.ok()) {
    std::fprintf(stderr, "%s\n", shards.status().ToString().c_str());
    return 1;
  }
  const HalfUpdate update(*shards);
  Run("model-" + std::to_string(update.inputs.size()) + "-linears", update.spec, update.inputs);
  return 0;
}

}  // namespace
}  // namespace espalier::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: b3_select MODEL\n");
    return 2;
  }
  return espalier::bench::Main(argv[1]);
}
