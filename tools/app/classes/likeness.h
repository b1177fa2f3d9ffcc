#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/format.h"

namespace millrace::app {

/// Recognises frames that are unlike every class. A class is known by the mean and the variance of
/// each value of its frames' thumbnails; a frame is unlike it if the mean squared distance of its
/// thumbnail, over those variances, exceeds kMost in any light, from half as bright to twice. Keeps
/// beside it the mean of what a network makes of the class's frames. Needs no network.
/// Thread-bound.
class Likeness {
 public:
  static constexpr int kWidth = 16, kHeight = 12;
  static constexpr double kFloor = 10.0 / 255;  ///< deviation of a value that never changes
  static constexpr double kMost = 5;            ///< frames of a known class stay below 3
  static constexpr double kLight = 2;           ///< the light may change by this factor

  /// Values in a thumbnail of a frame with so many channels.
  static std::size_t values(int channels) { return std::size_t(channels * kWidth * kHeight); }
  /// Averages `frame`, [C,H,W], over the cells of a thumbnail.
  static void shrink(std::span<const float> frame, int channels, int height, int width,
                     std::span<float> thumbnail) {
    float* cell = thumbnail.data();
    for (int c = 0; c < channels; ++c) {
      const float* const plane = frame.data() + std::size_t(c) * std::size_t(height * width);
      for (int row = 0; row < kHeight; ++row) {
        const auto [top, bottom] = cells(row, kHeight, height);
        for (int column = 0; column < kWidth; ++column) {
          const auto [left, right] = cells(column, kWidth, width);
          float sum = 0;
          for (int y = top; y < bottom; ++y)
            for (int x = left; x < right; ++x) sum += plane[y * width + x];
          *cell++ = sum / float((bottom - top) * (right - left));
        }
      }
    }
  }

  /// Replaces the statistics of `label` by those of `thumbnails`; none: the class becomes unknown.
  void learn(std::size_t label, const std::vector<const float*>& thumbnails, std::size_t values) {
    if (classes_.size() <= label) classes_.resize(label + 1);
    Known& known = classes_[label];
    known.mean.assign(thumbnails.empty() ? 0 : values, 0);
    known.deviation = known.mean;
    const double count = double(thumbnails.size());
    for (std::size_t i = 0; i < known.mean.size(); ++i) {
      double sum = 0, squares = 0;
      for (const float* const one : thumbnails) sum += one[i];
      for (const float* const one : thumbnails)
        squares += (one[i] - sum / count) * (one[i] - sum / count);
      known.mean[i] = float(sum / count);
      // The mean of few frames has an error itself.
      known.deviation[i] = float(std::sqrt(squares / std::max(1.0, count - 1) * (1 + 1 / count)));
    }
  }
  /// The mean of the network's features of `label`; empty: not known.
  std::span<const float> features(std::size_t label) const {
    return knows(label) ? std::span<const float>(classes_[label].features)
                        : std::span<const float>();
  }
  /// `label` must be known.
  void set_features(std::size_t label, std::span<const float> mean) {
    classes_[label].features.assign(mean.begin(), mean.end());
  }
  bool knows(std::size_t label) const {
    return label < classes_.size() && !classes_[label].mean.empty();
  }
  bool any() const {
    return std::ranges::any_of(classes_, [](const Known& known) { return !known.mean.empty(); });
  }
  bool unlike(std::span<const float> thumbnail) const {
    double least = std::numeric_limits<double>::infinity();
    for (const Known& known : classes_) {
      if (known.mean.size() != thumbnail.size()) continue;
      // |thumbnail * light - mean|^2 is least where its derivative by `light` is 0.
      double own = 0, both = 0, means = 0;
      for (std::size_t i = 0; i < thumbnail.size(); ++i) {
        const double value = thumbnail[i], mean = known.mean[i],
                     weight = 1 / (known.deviation[i] * known.deviation[i] + kFloor * kFloor);
        own += weight * value * value;
        both += weight * value * mean;
        means += weight * mean * mean;
      }
      const double light = own > 0 ? std::clamp(both / own, 1 / kLight, kLight) : 1;
      least = std::min(least,
                       (light * light * own - 2 * light * both + means) / double(thumbnail.size()));
    }
    return least > kMost;
  }

  /// [{"mean": [...], "deviation": [...], "features": [...]}, ...] by class, the first two in
  /// 255ths, for a weights file. `features`: whether the file has the weights that made them.
  nlohmann::json json(bool features) const {
    nlohmann::json all = nlohmann::json::array();
    for (const Known& known : classes_) {
      all.push_back({{"mean", rounded(known.mean)}, {"deviation", rounded(known.deviation)}});
      if (features) all.back()["features"] = short_numbers(known.features);
    }
    return all;
  }
  /// Reads json(); anything else gives one that knows no class.
  static Likeness from(const nlohmann::json& json) {
    Likeness all;
    if (!json.is_array()) return all;
    for (const auto& one : json) {
      Known known{numbers(one, "mean", 255), numbers(one, "deviation", 255),
                  numbers(one, "features", 1)};
      if (known.mean.size() != known.deviation.size()) known = {};
      all.classes_.push_back(std::move(known));
    }
    return all;
  }

 private:
  struct Known {
    std::vector<float> mean, deviation;  ///< empty: not known
    std::vector<float> features;
  };
  /// The pixels of cell `at` of `cells` along a side; at least one.
  static std::pair<int, int> cells(int at, int cells, int side) {
    const int begin = std::min(at * side / cells, side - 1);
    return {begin, std::max(begin + 1, (at + 1) * side / cells)};
  }
  static std::vector<int> rounded(const std::vector<float>& values) {
    std::vector<int> all;
    for (const float value : values) all.push_back(int(std::lround(255 * value)));
    return all;
  }
  static std::vector<double> short_numbers(const std::vector<float>& values) {
    std::vector<double> all;
    for (const float value : values) all.push_back(std::stod(engine::format("%.5g", value)));
    return all;
  }
  static std::vector<float> numbers(const nlohmann::json& json, const char* key, float unit) {
    std::vector<float> all;
    if (!json.is_object() || !json.contains(key) || !json[key].is_array()) return all;
    for (const auto& value : json[key]) {
      if (!value.is_number()) return {};
      all.push_back(value.get<float>() / unit);
    }
    return all;
  }

  std::vector<Known> classes_;
};

}  // namespace millrace::app
