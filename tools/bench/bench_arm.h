#pragma once

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "engine/monitor/median.h"
#include "engine/trainer/trainer.h"

namespace millrace::bench {

using engine::Clock, engine::median;

/// Cycles through a few random frames until the time is up. Copies each frame, like a real feed.
/// Records when predictions were made.
class TimedFeed final : public engine::Feed, public engine::Observer {
 public:
  TimedFeed(engine::Sample& sample, double seconds, std::int64_t least)
      : least_(least), seconds_(seconds) {
    predicted_at.reserve(1 << 18);
    std::mt19937 random(1);
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    for (std::vector<std::byte>& frame : frames_) {
      for (float& v : sample.input()) v = unit(random);
      for (std::uint8_t& v : sample.input_bytes()) v = std::uint8_t(255 * unit(random));
      const std::span<std::byte> memory = sample.memory()[0];
      frame.assign(memory.begin(), memory.end());
    }
  }

  Status poll(std::chrono::microseconds) override {
    const Clock::time_point now = Clock::now();
    if (taken_ == 0) begin_ = now;  // starts after recording, which may take as long as a turn
    return taken_ < least_ || now - begin_ < seconds_ ? Status::ready : Status::end;
  }
  void take(engine::Sample& sample) override {
    const std::vector<std::byte>& frame = frames_[std::size_t(taken_) % frames_.size()];
    std::memcpy(sample.memory()[0].data(), frame.data(), frame.size());
    sample.info.frame = taken_++;
    sample.info.captured = Clock::now();
  }
  void predicted(engine::Sample&, float) override {
    if (predicted_at.size() < predicted_at.capacity()) predicted_at.push_back(Clock::now());
  }

  std::vector<Clock::time_point> predicted_at;

 private:
  std::int64_t least_;
  std::array<std::vector<std::byte>, 4> frames_;
  std::chrono::duration<double> seconds_;
  Clock::time_point begin_;
  std::int64_t taken_ = 0;
};

/// Trains on prepared frames for about `seconds`, and on at least `least` samples so that every
/// figure exists even if samples are slow. Returns when predictions were made.
inline std::vector<Clock::time_point> take_turn(engine::Trainer& trainer, double seconds,
                                                std::int64_t least) {
  TimedFeed feed(trainer.in_slot(0), seconds, least);
  trainer.run(feed, &feed);
  return std::move(feed.predicted_at);
}

/// {"preset", "layers", "features", "kernel"}; default: ten convolutions of 16 features, kernel 5.
inline stages::ModelSpec model_of(const nlohmann::ordered_json& network) {
  stages::ModelSpec model;
  model.preset = network.value("preset", model.preset);
  model.layers = network.value("layers", model.layers);
  model.features = network.value("features", model.features);
  model.kernel = network.value("kernel", model.kernel);
  return model;
}

}  // namespace millrace::bench
