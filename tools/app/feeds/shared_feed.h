// Frames for the ranks that share modules with the rank that has the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"

namespace millrace::app {

/// A sample as a message: its info, its input, and its target where that is another.
class SampleMessage {
 public:
  /// Of the size of `sample`.
  explicit SampleMessage(engine::Sample& sample);
  std::vector<std::byte>& bytes() { return bytes_; }
  void pack(engine::Sample& sample);
  void unpack(engine::Sample& sample);

 private:
  std::vector<std::byte> bytes_;
};

/// Of rank 0 of `group`: the feed of this rank's pipeline, and of the others'. As engine::Feed.
class SharedFeed final : public engine::Feed {
 public:
  /// All outlive it. `trainer`: that takes from it.
  SharedFeed(engine::Feed& own, engine::Exchange& group, engine::Trainer& trainer);
  Status poll(std::chrono::microseconds patience) override { return own_.poll(patience); }
  void take(engine::Sample& sample) override;
  Status targets_known(std::chrono::microseconds patience) override { return own_.targets_known(patience); }
  std::int64_t missed() const override { return own_.missed(); }
  /// By the worker that takes from it: no more is taken.
  void end();

 private:
  engine::Feed& own_;
  engine::Exchange& group_;
  SampleMessage message_;
  std::vector<int> ports_;
  std::int64_t taken_ = 0;
};

/// Of the other ranks of `group`.
class ReceivedFeed final : public engine::Feed {
 public:
  ReceivedFeed(engine::Exchange& group, engine::Trainer& trainer);
  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;

 private:
  engine::Exchange& group_;
  SampleMessage message_;
  int port_ = 0;
  std::int64_t taken_ = 0, end_ = -1;
};

}  // namespace millrace::app
