#include "tools/bench/bench_arm.h"

#include <cstring>
#include <random>

namespace millrace::bench {
namespace {

using engine::Clock;

/// Cycles through a few random frames, as floats or as bytes, until the time is up. Costs a copy a
/// frame, as a real feed does.
class TimedFeed final : public engine::Feed {
 public:
  TimedFeed(engine::Trainer& trainer, std::size_t elements, double seconds, std::int64_t least)
      : least_(least), seconds_(seconds) {
    const bool as_bytes = !trainer.in_slot(0).input_bytes().empty();
    frames_.resize(kFrames, std::vector<float>(as_bytes ? 0 : elements));
    bytes_.resize(kFrames, std::vector<std::uint8_t>(as_bytes ? elements : 0));
    std::mt19937 random(1);
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    for (auto& frame : frames_) {
      for (float& v : frame) v = unit(random);
    }
    for (auto& frame : bytes_) {
      for (std::uint8_t& v : frame) v = std::uint8_t(255 * unit(random));
    }
  }

  Status poll(std::chrono::microseconds patience) override {
    const Clock::time_point now = Clock::now();
    if (taken_ == 0) begin_ = now;  // recording comes before, and may take as long as a turn
    return taken_ < least_ || now - begin_ < seconds_ ? Status::ready : Status::end;
  }
  void take(engine::Sample& sample) override {
    const std::size_t which = std::size_t(taken_) % kFrames;
    if (const auto bytes = sample.input_bytes(); !bytes.empty()) {
      std::memcpy(bytes.data(), bytes_[which].data(), bytes_[which].size());
    } else {
      std::memcpy(sample.input().data(), frames_[which].data(),
                  frames_[which].size() * sizeof(float));
    }
    sample.info.frame = taken_++;
    sample.info.captured = Clock::now();
  }

 private:
  static constexpr std::size_t kFrames = 4;

  std::int64_t least_;
  std::vector<std::vector<float>> frames_;        ///< empty ones where bytes are taken
  std::vector<std::vector<std::uint8_t>> bytes_;  ///< and the other way round
  std::chrono::duration<double> seconds_;
  Clock::time_point begin_;
  std::int64_t taken_ = 0;
};

}  // namespace

stages::ModelSpec bench_network(const std::string& name) {
  stages::ModelSpec model;  // basic is the default network
  if (name == "layers") model.layers *= 3;
  if (name == "features") model.features *= 3;
  if (name == "kernel") model.kernel *= 3;
  if (name == "resnet18") model.preset = name;
  return model;
}

const std::vector<std::string>& bench_network_names() {
  static const std::vector<std::string> names = {"basic", "layers", "features", "kernel"};
  return names;
}

BenchArm::BenchArm(std::string network, std::int64_t size, int stages, bool channels_last)
    : BenchArm(std::move(network), size, {{.stages = stages}}, channels_last) {}

BenchArm::BenchArm(std::string network, std::int64_t size, engine::TrainerOptions options,
                   bool channels_last)
    : network_(std::move(network)), size_(size), options_(std::move(options)) {
  if (size > 0) options_.sample = {3, size, size};
  if (!options_.network) {
    stages::ModelSpec model = bench_network(network_);
    model.channels_last = channels_last;
    options_.network = stages::build_network(model, options_.sample);
  }
  if (options_.weights.empty()) options_.weights = stages::initial_state(*options_.network, 0);
  if (options_.cut.empty()) options_.cut = engine::Trainer(options_).cut();
}

Turn BenchArm::turn(double seconds, std::int64_t least, engine::Observer* observer) {
  engine::Trainer trainer(options_);
  const stages::ImageShape& sample = options_.sample;
  TimedFeed feed(trainer, std::size_t(sample.channels * sample.height * sample.width), seconds,
                 least);
  trainer.run(feed, observer);
  Turn turn{.reading = trainer.monitor().read(), .facts = trainer.facts()};
  // The steady state's rate: filling and draining the pipeline are no part of an endless stream.
  turn.fps = turn.reading.step_p50 > 0 ? 1e3 / turn.reading.step_p50 : 0;
  return turn;
}

}  // namespace millrace::bench
