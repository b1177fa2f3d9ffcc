#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pipeline/gateway.h"
#include "engine/pipeline/rank_letters.h"
#include "engine/pipeline/rank_ports.h"

namespace millrace::engine {

/// The gateway of a pipeline shared by several processes. Rank 0 has the feed and the observer; the
/// others get samples from it and send it predictions. Tokens between ranks go by messages. Waiting
/// workers make progress for all; an extra thread only sends two heartbeats a second. Thread-safe.
class RankGateway final : public Gateway {
 public:
  /// `shared`, of a pipeline over ranks, must outlive this.
  explicit RankGateway(Shared& shared);
  ~RankGateway() override;

  bool runs(int worker) const override {
    return ranks_.rank_of_worker[std::size_t(worker)] == exchange_.rank();
  }
  std::vector<std::pair<std::string, std::function<void()>>> threads() override;
  std::unique_ptr<Patience> patience(const Program& program) override;
  /// Handles arrived messages; returns at once if another thread is doing so.
  void progress() override;

  bool admits() const override { return exchange_.rank() == 0; }
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) override;
  Feed::Status poll(std::int64_t sample, std::chrono::microseconds patience) override {
    return admits() ? Gateway::poll(sample, patience) : Feed::Status::ready;
  }
  void take(std::int64_t sample, Clock::time_point asked) override;
  bool has_target(std::int64_t sample) const override;
  void shown(std::int64_t sample) override {
    if (!shows_in_turn()) Gateway::shown(sample);
  }
  void predicted(std::int64_t sample, float loss) override;
  void release(std::int64_t sample) override;
  /// Between copies of the pipeline: the gradient becomes the mean of theirs, applied only if all
  /// are trained, and the most severe alarm applies to all. Where ranks share modules: a gradient
  /// that is not finite on one is discarded by all. Blocks until all have called it.
  void agree(int stage, Fate& fate, Alarm& alarm) override;
  void fail(const std::exception& error) override;
  /// Throws std::runtime_error, "rank N: ...", if a rank failed; RankLost if one is silent for 5 s.
  FateCounts finish() override;

  /// Whether a message sent here still needs progress(). Any thread.
  bool is_sending() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Head = RankPorts::Head;
  using Route = RankPorts::Route;

  void end_of_stream(std::int64_t samples) override;
  /// On rank 0: admits the samples of a stage 0 replica on another rank and sends them there.
  void deal(int replica_id);
  bool send(Cargo cargo, int from, int to, const Token& token);
  void keep_alive();
  /// Whether this rank's predictions are shown in order with those of other ranks, on rank 0.
  bool shows_in_turn() const { return !admits() || spread_; }

  // Under the mutex.
  bool put(Route& route, Lock& lock, const Head& head);  ///< false: the run was stopped meanwhile
  void receive();
  void handle(Route& route, RankPorts::Buffer& buffer);
  template <class Done>
  void receive_until(Lock& lock, const Done& done);
  void know(std::int64_t sample, const SampleInfo& info);
  void show(std::int64_t sample, float loss);  ///< on rank 0, after all earlier samples
  LossCounts counted_here() const;             ///< in this run
  void count(int rank, const LossCounts& counts);
  bool all_predictions_came() const;

  /// [slot]: the latest sample with which a message has filled it.
  using Arrivals = std::unique_ptr<std::atomic<std::int64_t>[]>;
  struct ToShow {
    std::int64_t sample = -1;
    float loss = 0;
  };

  const RankOptions& ranks_;
  Exchange& exchange_;
  Freight& freight_;
  RankPorts ports_;
  RankLetters letters_;
  Arrivals targets_, samples_;
  bool spread_ = false;              ///< rank 0 and others have the last stage
  std::int64_t predictions_ = 0;     ///< sent or received
  std::vector<ToShow> to_show_;      ///< [slot]
  std::int64_t shown_ = 0;           ///< samples
  std::vector<FateCounts> counted_;  ///< [rank], as far as known here
  std::condition_variable_any closing_;
  bool closed_ = false;
  std::thread alive_;
};

}  // namespace millrace::engine
