// Sends frames to the ranks that share modules with the rank that reads the source.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"

namespace millrace::app {

/// A sample as a message: info, input, and the target if it is not the input.
class SampleMessage {
 public:
  /// For samples of the size of `sample`.
  explicit SampleMessage(engine::Sample& sample) {
    const auto [input, target] = sample.memory();
    bytes_.resize(sizeof(engine::SampleInfo) + input.size() + target.size());
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  void pack(engine::Sample& sample) {
    std::memcpy(bytes_.data(), &sample.info, sizeof sample.info);
    std::byte* to = bytes_.data() + sizeof sample.info;
    for (const std::span<std::byte> part : sample.memory()) to = std::ranges::copy(part, to).out;
  }
  void unpack(engine::Sample& sample) {
    std::memcpy(static_cast<void*>(&sample.info), bytes_.data(), sizeof sample.info);
    const std::byte* from = bytes_.data() + sizeof sample.info;
    for (const std::span<std::byte> part : sample.memory()) {
      std::copy_n(from, part.size(), part.begin());
      from += part.size();
    }
  }

 private:
  std::vector<std::byte> bytes_;
};

/// On rank 0 of `group`: feeds this rank's pipeline and the other ranks'. Threads as engine::Feed.
class SharedFeed final : public engine::Feed {
 public:
  /// All arguments outlive it. `trainer`: takes samples from it.
  SharedFeed(engine::Feed& own, engine::Exchange& group, engine::Trainer& trainer)
      : own_(own), group_(group), message_(trainer.in_slot(0)) {
    const std::lock_guard lock(group.mutex());
    for (int rank = 1; rank < group.ranks(); ++rank)
      ports_.push_back(group.open_to(rank, engine::Exchange::kFeedTag, {message_.bytes()}));
  }
  Status poll(std::chrono::microseconds patience) override { return own_.poll(patience); }
  void take(engine::Sample& sample) override {
    own_.take(sample);
    const auto all_over = [&] {
      const std::lock_guard lock(group_.mutex());
      for (const int port : ports_) {
        if (!group_.over(port)) return false;
      }
      return true;
    };
    // The others take each sample at once; if one is gone, the pipeline finds out.
    for (int looks = 0; !all_over() && looks < 200'000; ++looks)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    message_.pack(sample);
    const std::lock_guard lock(group_.mutex());
    for (const int port : ports_) group_.start(port);
    ++taken_;
  }
  Status targets_known(std::chrono::microseconds patience) override {
    return own_.targets_known(patience);
  }
  std::int64_t missed() const override { return own_.missed(); }
  /// No more samples follow. By the worker that takes them.
  void end() {
    const std::lock_guard lock(group_.mutex());
    for (int rank = 1; rank < group_.ranks(); ++rank)
      group_.post(rank, engine::Exchange::About::run, std::to_string(taken_));
  }

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
  ReceivedFeed(engine::Exchange& group, engine::Trainer& trainer)
      : group_(group), message_(trainer.in_slot(0)) {
    const std::lock_guard lock(group.mutex());
    port_ = group.open_from(0, engine::Exchange::kFeedTag, {message_.bytes()});
    group.start(port_);
  }
  Status poll(std::chrono::microseconds patience) override {
    {
      const std::lock_guard lock(group_.mutex());
      if (const auto letter = group_.letter(engine::Exchange::About::run))
        end_ = std::stoll(letter->text);
      if (taken_ == end_) return Status::end;
      if (group_.over(port_)) return Status::ready;
    }
    if (patience.count() > 0) std::this_thread::sleep_for(patience);
    return Status::wait;
  }
  void take(engine::Sample& sample) override {
    message_.unpack(sample);
    ++taken_;
    const std::lock_guard lock(group_.mutex());
    group_.start(port_);
  }

 private:
  engine::Exchange& group_;
  SampleMessage message_;
  int port_ = 0;
  std::int64_t taken_ = 0, end_ = -1;
};

}  // namespace millrace::app
