#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/monitor/histogram.h"
#include "engine/pipeline/feed.h"
#include "stages/model_spec.h"
#include "tools/app/classes/likeness.h"

namespace millrace::app {

struct Answer {
  std::int16_t label = -1;  ///< -1: no class is known yet, or `neither`
  bool neither = false;     ///< the frame is unlike every class
  float probability = 0;    ///< of the label
};

/// The class of each new frame and its probability: by softmax of class scores, or the output
/// itself. Called by the last stage's worker; now(): any thread.
class Answers final : public engine::Observer {
 public:
  /// `scores`: outputs are class scores. `known` outlives this. `must_know`: no answer until
  /// `known` has a class. `names`: of the classes; empty: numbers.
  Answers(const stages::ImageShape& frame, bool scores, const Likeness& known, bool must_know,
          std::vector<std::string> names)
      : frame_(frame),
        scores_(scores),
        must_know_(must_know),
        known_(known),
        names_(std::move(names)),
        thumbnail_(Likeness::values(int(frame.channels))) {}

  void shown(engine::Sample& sample) override {
    Answer answer;
    if (known_.any() || !must_know_) answer = most_likely(sample.prediction());
    if (known_.any()) {
      Likeness::shrink(sample.shown_input(), int(frame_.channels), int(frame_.height),
                       int(frame_.width), thumbnail_);
      if (known_.unlike(thumbnail_)) answer = {.neither = true};
    }
    now_.store(answer, std::memory_order_relaxed);
    frames_ += 1;
    if (answer.neither) neither_ += 1;
  }
  void predicted(engine::Sample&, float) override {}

  Answer now() const { return now_.load(std::memory_order_relaxed); }
  /// The class's name; "": none is known yet.
  std::string name(const Answer& answer) const {
    if (answer.neither) return "neither";
    if (answer.label < 0) return "";
    const auto label = std::size_t(answer.label);
    return label < names_.size() ? names_[label] : std::to_string(label);
  }
  /// {"class": "night", "probability": 0.97, "neither": false}; null without a class.
  nlohmann::ordered_json json(const Answer& answer) const {
    const bool told = answer.label >= 0;
    return {{"class", told ? nlohmann::ordered_json(name(answer)) : nullptr},
            {"probability", told && std::isfinite(answer.probability)
                                ? nlohmann::ordered_json(std::round(1e4 * answer.probability) / 1e4)
                                : nullptr},
            {"neither", answer.neither}};
  }
  /// Share of frames so far that were unlike every class.
  double neither() const { return frames_ > 0 ? double(neither_) / double(frames_) : 0; }

 private:
  Answer most_likely(std::span<const float> outputs) const {
    const auto best = std::size_t(std::ranges::max_element(outputs) - outputs.begin());
    float sum = 0;
    for (const float output : outputs) sum += std::exp(output - outputs[best]);
    const float sure = std::clamp(outputs[best], 0.0f, 1.0f);
    return {.label = std::int16_t(best), .probability = scores_ ? 1 / sum : sure};
  }

  const stages::ImageShape frame_;
  const bool scores_, must_know_;
  const Likeness& known_;
  const std::vector<std::string> names_;
  std::vector<float> thumbnail_;
  std::atomic<Answer> now_{Answer()};
  engine::Counter<std::int64_t> frames_, neither_;
};
static_assert(std::atomic<Answer>::is_always_lock_free);

}  // namespace millrace::app
