// The edge of a pipeline that several processes share.
#pragma once

#include "engine/pipeline/edge.h"
#include "engine/pipeline/rank_links.h"

namespace millrace::engine {

/// Rank 0 has the feed and the observer; the others get samples from it and send predictions back.
class RankEdge final : public LocalEdge {
 public:
  /// All outlive this.
  RankEdge(const RankOptions& ranks, Shared& shared, const PipelineOptions& options);

  bool runs(int worker) const override {
    return ranks_.rank_of_worker[std::size_t(worker)] == links_.rank();
  }
  std::vector<std::pair<std::string, std::function<void()>>> threads() override;
  std::unique_ptr<Patience> patience(const Program& program) override;
  void progress() override { links_.progress(); }

  bool admits() const override { return links_.has_feed(); }
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) override;
  Feed::Status poll(std::int64_t sample, std::chrono::microseconds patience) override;
  void take(std::int64_t sample, Clock::time_point asked) override;
  bool has_target(std::int64_t sample) const override { return links_.has_target(sample); }
  void shown(std::int64_t sample) override;
  void predicted(std::int64_t sample, float loss) override;
  void release(std::int64_t sample) override;
  void agree(int stage, bool& learned, Alarm& alarm) override {
    links_.agree(stage, learned, alarm);
  }
  void fail(const std::exception& error) override;
  FateCounts finish() override { return links_.finish(); }

 private:
  void end_of_stream(std::int64_t samples) override;
  /// On rank 0: takes the samples of a replica of stage 0 on another rank and sends them there.
  void deal(int replica_id);

  const RankOptions& ranks_;
  RankLinks links_;
};

}  // namespace millrace::engine
