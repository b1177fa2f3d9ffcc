// Sends frames to the ranks that share modules with the rank that reads the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"

namespace millrace::app {

/// A sample as a message: info, input, and the target if it is not the input.
class SampleMessage {
 public:
  /// For samples of the size of `sample`.
  explicit SampleMessage(engine::Sample& sample);
  std::vector<std::byte>& bytes() { return bytes_; }
  void pack(engine::Sample& sample);
  void unpack(engine::Sample& sample);

 private:
  std::vector<std::byte> bytes_;
};

/// On rank 0 of `group`: feeds this rank's pipeline and the other ranks'. Threads as engine::Feed.
class SharedFeed final : public engine::Feed {
 public:
  /// All arguments outlive it. `trainer`: takes samples from it.
  SharedFeed(engine::Feed& own, engine::Exchange& group, engine::Trainer& trainer);
  Status poll(std::chrono::microseconds patience) override { return own_.poll(patience); }
  void take(engine::Sample& sample) override;
  Status targets_known(std::chrono::microseconds patience) override {
    return own_.targets_known(patience);
  }
  std::int64_t missed() const override { return own_.missed(); }
  /// No more samples follow. By the worker that takes them.
  void end();

 private:
  engine::Feed& own_;
  engine::Exchange& group_;
  SampleMessage message_;
  std::vector<int> ports_;
  std::int64_t taken_ = 0;
};

/// On the other ranks of `group`.
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
