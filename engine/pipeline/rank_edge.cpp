#include "engine/pipeline/rank_edge.h"

#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "engine/pipeline/wait_forecast.h"

namespace millrace::engine {
namespace {

/// Messages move only while somebody looks, and ranks may share a core: a worker sleeps for as long
/// as the schedule's earlier waits at the same action lasted, and looks often after that.
class RankPatience final : public Patience {
 public:
  RankPatience(const RankLinks& links, const Program& program) : links_(links), waits_(program) {
    prctl(PR_SET_TIMERSLACK, 1);  // a short sleep ends when it should
  }

  void begin(std::int64_t at) override {
    due_ = (since_ = Clock::now()) + (at < 0 ? Clock::duration() : waits_.at_least(at));
  }
  void came(std::int64_t at, Clock::duration waited) override { waits_.waited(at, waited); }

  std::chrono::microseconds next(std::chrono::microseconds own) override {
    using std::chrono::microseconds;
    // Rank 0 shows what others predict, so it looks more often.
    constexpr microseconds kShows{100}, kRests{2000};
    // A sleep ends late by as much as a message takes, so none begins while a token should come.
    constexpr std::chrono::milliseconds kLooks{5};
    const Clock::time_point now = Clock::now();
    const Clock::duration early = due_ - now;
    if (early > kImpatience && own == kPatience && !links_.sends()) {
      const microseconds rest = links_.has_feed() ? kShows : kRests;
      return std::min(rest, std::chrono::duration_cast<microseconds>(early));
    }
    if (now - (early > kImpatience ? since_ : due_) > kLooks) return kImpatience;
    std::this_thread::yield();
    return microseconds(0);
  }

 private:
  const RankLinks& links_;
  WaitForecast waits_;
  Clock::time_point since_, due_;
};

}  // namespace

RankEdge::RankEdge(const RankOptions& ranks, Shared& shared, const PipelineOptions& options)
    : LocalEdge(shared, options), ranks_(ranks), links_(ranks, shared, options) {}

std::unique_ptr<Patience> RankEdge::patience(const Program& program) {
  return std::make_unique<RankPatience>(links_, program);
}

bool RankEdge::acquire(std::int64_t sample, std::chrono::microseconds patience) {
  if (admits()) return LocalEdge::acquire(sample, patience);
  if (links_.has_sample(sample)) return true;
  if (patience.count() > 0) std::this_thread::sleep_for(patience);
  return false;
}

Feed::Status RankEdge::poll(std::int64_t sample, std::chrono::microseconds patience) {
  return admits() ? LocalEdge::poll(sample, patience) : Feed::Status::ready;
}

void RankEdge::take(std::int64_t sample, Clock::time_point asked) {
  if (!admits()) return;  // rank 0 has filled the slot
  LocalEdge::take(sample, asked);
  links_.send_target(sample);
}

void RankEdge::shown(std::int64_t sample) {
  if (!links_.shows()) LocalEdge::shown(sample);
}

void RankEdge::predicted(std::int64_t sample, float loss) {
  if (links_.shows()) return links_.send_prediction(sample, loss);
  LocalEdge::predicted(sample, loss);
}

void RankEdge::release(std::int64_t sample) {
  admits() ? LocalEdge::release(sample) : links_.release(sample);
}

void RankEdge::end_of_stream(std::int64_t samples) {
  LocalEdge::end_of_stream(samples);
  links_.end_of_stream(samples);
}

void RankEdge::fail(const std::exception& error) {
  links_.fail(error.what(), dynamic_cast<const RankLost*>(&error) != nullptr);
}

std::vector<std::pair<std::string, std::function<void()>>> RankEdge::threads() {
  std::vector<std::pair<std::string, std::function<void()>>> all;
  for (int replica = 0; admits() && replica < shared_.schedule.replicas_of(0); ++replica) {
    const int replica_id = shared_.schedule.replica_id(0, replica);
    if (!runs(shared_.lowering.worker(replica_id)))
      all.emplace_back("samples of " + std::to_string(replica_id), [=, this] { deal(replica_id); });
  }
  return all;
}

void RankEdge::deal(int replica_id) {
  using Kind = Signal::Kind;
  const Lowering& lowering = shared_.lowering;
  for (std::int64_t sample = replica_id;; sample += lowering.replicas(0)) {
    const auto over = [&] { return shared_.over(sample); };
    Token token;
    TokenQueue& turn = shared_.channels.queue(
        {Kind::admission, 0, sample - 1, lowering.replica_with(0, sample - 1), replica_id});
    while (!turn.receive(token, kPatience)) {
      if (over()) return;
    }
    while (!shared_.pool.acquire(sample, kPatience)) {
      if (over()) return;
    }
    const Clock::time_point asked = Clock::now();
    while (LocalEdge::poll(sample, kPatience) != Feed::Status::ready) {
      if (over()) return;
    }
    take(sample, asked);
    links_.send_sample(sample);
    shared_.channels
        .link({Kind::admission, 0, sample, replica_id, lowering.replica_with(0, sample + 1)})
        .send({.sample = sample}, over);
  }
}

}  // namespace millrace::engine
