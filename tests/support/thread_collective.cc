#include "tests/support/thread_collective.h"

#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/clock.h"
#include "proto/support/errors.h"
#include "proto/support/mutex.h"
#include "proto/support/status_macros.h"
#include "worker/collective/call_state.h"

namespace espalier::testing {
namespace {

enum class Op { kAllReduce, kAllGather, kGatherTo, kBroadcast, kBarrier };

// What one rank brings to a call.
struct Request {
  Op op;
  std::string operation;
  int64_t command_id = 0;
  int root = 0;
  ReduceOp reduce = ReduceOp::kSum;
  absl::Span<int64_t> values;
  absl::Span<const std::byte> in;
  absl::Span<const int64_t> sizes;
  absl::Span<std::byte> out;

  std::string Name() const {
    return absl::StrCat(operation, " of command ", command_id, ", op ", static_cast<int>(op), ", root ", root,
                        ", reduce ", static_cast<int>(reduce), ", ", values.size(), " values");
  }
};

int64_t Reduce(int64_t a, int64_t b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
  }
  return 0;
}

}  // namespace

// Where the ranks meet: the last one to arrive does the work of all while the others wait, so no buffer is ever touched
// after its owner has left.
class ThreadGroup::Meeting {
 public:
  explicit Meeting(int world_size) : requests_(static_cast<size_t>(world_size)) {}

  absl::Status Meet(int rank, const Request& request, int64_t sequence, absl::Duration deadline) {
    const absl::Duration start = SystemClock().Monotonic();
    MutexLock lock(mutex_);
    if (!cause_.ok()) return cause_;
    const int64_t round = round_;
    requests_[static_cast<size_t>(rank)] = std::make_unique<Request>(request);
    if (++arrived_ == requests_.size()) {
      cause_ = Perform();
      for (auto& each : requests_) each.reset();
      arrived_ = 0;
      if (cause_.ok()) ++round_;
      changed_.SignalAll();
      return cause_;
    }
    while (cause_.ok() && round == round_) {
      const absl::Duration left = start + deadline - SystemClock().Monotonic();
      if (left <= absl::ZeroDuration()) {
        PoisonLocked(CollectiveTimeout({request.operation, request.command_id}, sequence, deadline, Missing()));
        break;
      }
      changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
    }
    // A round that was completed counts, whatever happened to the group after it.
    return round == round_ ? cause_ : absl::OkStatus();
  }

  void Poison(const absl::Status& cause) {
    MutexLock lock(mutex_);
    PoisonLocked(cause);
  }

 private:
  void PoisonLocked(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (cause_.ok()) cause_ = cause;
    changed_.SignalAll();
  }

  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<size_t> missing;
    for (size_t r = 0; r < requests_.size(); ++r) {
      if (requests_[r] == nullptr) missing.push_back(r);
    }
    return absl::StrJoin(missing, ",");
  }

  absl::Status Perform() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Request& first = *requests_[0];
    const CollectiveTag tag{first.operation, first.command_id};
    for (const auto& each : requests_) {
      if (each->Name() != first.Name()) {
        return MakeError(v1::ERROR_REASON_INVARIANT,
                         absl::StrCat("ranks entered different collectives: ", first.Name(), " and ", each->Name()),
                         {{"what", "tags differ"}, {"where", first.operation}});
      }
    }
    switch (first.op) {
      case Op::kBarrier:
        break;
      case Op::kAllReduce:
        for (size_t i = 0; i < first.values.size(); ++i) {
          int64_t value = first.values[i];
          for (size_t r = 1; r < requests_.size(); ++r) value = Reduce(value, requests_[r]->values[i], first.reduce);
          for (const auto& each : requests_) each->values[i] = value;
        }
        break;
      case Op::kBroadcast: {
        const absl::Span<std::byte> from = requests_[static_cast<size_t>(first.root)]->out;
        for (const auto& each : requests_) {
          if (each->out.size() != from.size()) return Sizes(tag, from.size(), each->out.size());
          if (each->out.data() != from.data()) std::copy(from.begin(), from.end(), each->out.begin());
        }
        break;
      }
      case Op::kAllGather:
        for (const auto& each : requests_) {
          if (each->in.size() != first.in.size()) return Sizes(tag, first.in.size(), each->in.size());
          if (each->out.size() != first.in.size() * requests_.size()) {
            return Sizes(tag, first.in.size() * requests_.size(), each->out.size());
          }
          Concatenate(each->out);
        }
        break;
      case Op::kGatherTo: {
        size_t total = 0;
        for (size_t r = 0; r < requests_.size(); ++r) {
          const Request& each = *requests_[r];
          if (each.sizes != first.sizes || each.sizes.size() != requests_.size()) {
            return MakeError(v1::ERROR_REASON_INVARIANT, "lists of sizes differ",
                             {{"what", "sizes"}, {"where", first.operation}});
          }
          if (static_cast<int64_t>(each.in.size()) != each.sizes[r]) {
            return Sizes(tag, static_cast<size_t>(each.sizes[r]), each.in.size());
          }
          total += each.in.size();
        }
        const absl::Span<std::byte> out = requests_[static_cast<size_t>(first.root)]->out;
        if (out.size() != total) return Sizes(tag, total, out.size());
        Concatenate(out);
        break;
      }
    }
    return absl::OkStatus();
  }

  void Concatenate(absl::Span<std::byte> out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* to = out.data();
    for (const auto& each : requests_) to = std::copy(each->in.begin(), each->in.end(), to);
  }

  static absl::Status Sizes(const CollectiveTag& tag, size_t want, size_t got) {
    return BadBuffer(tag, "size of a buffer", static_cast<int64_t>(want), static_cast<int64_t>(got));
  }

  Mutex mutex_;
  CondVar changed_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Request>> requests_ ABSL_GUARDED_BY(mutex_);
};

class ThreadGroup::Rank final : public Collective {
 public:
  Rank(std::shared_ptr<Meeting> meeting, int rank, int world_size)
      : meeting_(std::move(meeting)), rank_(rank), world_size_(world_size) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  absl::Status AllReduce(const CollectiveTag& tag, absl::Span<int64_t> values, ReduceOp op) override {
    Request request = Make(Op::kAllReduce, tag);
    request.values = values;
    request.reduce = op;
    return Call(request, static_cast<int64_t>(values.size() * sizeof(int64_t)));
  }

  absl::Status AllGather(const CollectiveTag& tag, absl::Span<const std::byte> in, absl::Span<std::byte> out) override {
    Request request = Make(Op::kAllGather, tag);
    request.in = in;
    request.out = out;
    return Call(request, static_cast<int64_t>(in.size()) * (world_size_ - 1));
  }

  absl::Status GatherTo(const CollectiveTag& tag, int root, absl::Span<const std::byte> in,
                        absl::Span<const int64_t> sizes, absl::Span<std::byte> out) override {
    Request request = Make(Op::kGatherTo, tag);
    request.root = root;
    request.in = in;
    request.sizes = sizes;
    request.out = out;
    return Call(request, rank_ == root ? 0 : static_cast<int64_t>(in.size()));
  }

  absl::Status Broadcast(const CollectiveTag& tag, int root, absl::Span<std::byte> data) override {
    Request request = Make(Op::kBroadcast, tag);
    request.root = root;
    request.out = data;
    return Call(request, rank_ == root ? static_cast<int64_t>(data.size()) : 0);
  }

  absl::Status Barrier(const CollectiveTag& tag) override { return Call(Make(Op::kBarrier, tag), 0); }

  void SetDeadline(absl::Duration deadline) override { deadline_ = deadline; }
  int64_t sequence() const override { return calls_.sequence(); }
  bool in_call() const override { return calls_.in_call(); }
  int64_t bytes_sent() const override { return calls_.bytes_sent(); }
  void Cancel(const absl::Status& cause) override {
    calls_.Poison(cause);
    meeting_->Poison(calls_.cause());
  }

 private:
  static Request Make(Op op, const CollectiveTag& tag) {
    Request request;
    request.op = op;
    request.operation = std::string(tag.operation);
    request.command_id = tag.command_id;
    return request;
  }

  absl::Status Call(const Request& request, int64_t sent) {
    ESPALIER_RETURN_IF_ERROR(calls_.Enter());
    absl::Status result;
    if (request.root < 0 || request.root >= world_size_) {
      result = BadBuffer({request.operation, request.command_id}, "root", 0, request.root);
      meeting_->Poison(result);
    } else {
      result = meeting_->Meet(rank_, request, calls_.sequence(), deadline_);
    }
    return calls_.Leave(result, world_size_ == 1 ? 0 : sent);
  }

  const std::shared_ptr<Meeting> meeting_;
  const int rank_;
  const int world_size_;
  absl::Duration deadline_ = absl::Seconds(60);
  CallState calls_;
};

ThreadGroup::ThreadGroup(int world_size) : meeting_(std::make_shared<Meeting>(world_size)) {
  for (int r = 0; r < world_size; ++r) ranks_.push_back(std::make_shared<Rank>(meeting_, r, world_size));
}

ThreadGroup::~ThreadGroup() = default;

void ThreadGroup::Run(const std::function<void(Collective&)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(ranks_.size());
  for (const auto& each : ranks_) threads.emplace_back([&body, &each] { body(*each); });
  for (std::thread& thread : threads) thread.join();
}

void ThreadGroup::Lose(int rank) {
  meeting_->Poison(MakeError(v1::ERROR_REASON_WORKER_LOST, absl::StrCat("rank ", rank, " was lost"),
                             {{"rank", absl::StrCat(rank)}}));
}

}  // namespace espalier::testing
