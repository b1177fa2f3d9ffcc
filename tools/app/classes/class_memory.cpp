#include "tools/app/classes/class_memory.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace millrace::app {
namespace {

constexpr double kRidge = 0.01;      // over the features' mean square, from their mean
constexpr std::int64_t kShare = 16;  // solved anew when one in so many frames is new
constexpr double kUnknown = -1;      // score of a class without an example; the others' sum to 1
constexpr char kFeatures[] = "optimizer.memory.features",
               kThumbnails[] = "optimizer.memory.thumbnails",
               kClasses[] = "optimizer.memory.classes", kSeen[] = "optimizer.memory.seen";

/// All modules but the last. Null: there are none.
std::unique_ptr<stages::Stage> body_of(const std::shared_ptr<const stages::Network>& network,
                                       const stages::StateDict& weights) {
  if (network->size() == 1) return nullptr;
  stages::StageOptions options;
  options.recompute = true;  // keeps no graph
  auto body = std::make_unique<stages::Stage>(
      network, stages::StageRange{0, network->size() - 1, true, false}, stages::OptimizerSpec{},
      at::TensorOptions(at::kCPU), options);
  body->restore(weights);
  return body;
}

at::Tensor zeros(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kFloat) {
  return at::zeros({rows, columns}, type);
}

/// Weighted mean of -log(softmax(scale * scores)[label]).
double cross_entropy(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& shares,
                     double scale) {
  return -(at::log_softmax(scores * scale, 1).gather(1, labels).squeeze(1) * shares)
              .sum()
              .item<double>();
}

}  // namespace

ClassMemory::ClassMemory(std::shared_ptr<const stages::Network> network,
                         const stages::StateDict& weights, const ClassMemoryOptions& options)
    : options_(options),
      network_(std::move(network)),
      body_(body_of(network_, weights)),
      layer_(network_->parameters(network_->size() - 1, network_->size())),
      frame_(network_->shape(stages::kSample)),
      features_(zeros(options.places, layer_[0].shape[1])),
      gram_(zeros(options.places, options.places, at::kDouble)),
      thumbnails_(zeros(options.places, std::int64_t(Likeness::values(int(frame_.channels))))),
      counts_(std::size_t(layer_[0].shape[0])),
      seen_(counts_.size()),
      random_(options.seed),
      likeness_(options.known) {
  kept_.reserve(std::size_t(options.places));
  all_told_ = {counts_, 0, likeness_.json().dump()};
  // LAPACK's first calls run alone: beside a worker's they might choose other kernels.
  const at::Tensor factor = at::linalg_cholesky(at::eye(2, at::kDouble));
  at::cholesky_solve(factor, at::cholesky_inverse(factor));
}

void ClassMemory::see(std::span<const float> input, int label, int answer, double seconds) {
  if (judging_ > 0) --judging_;
  if (label != label_) {
    if (label_ >= 0) forget_late(seconds);
    label_ = label;
    began_ = seconds;
    if (label >= 0 && label != labelled_ && counts_[std::size_t(label)] > 0) {
      if (changes_ > 0 && !awaits()) fit();
      judging_ = kJudged;
    }
  }
  if (label < 0) return;
  labelled_ = label;
  const int place = place_for(label, answer != label);
  if (place >= 0) put(place, label, seconds, input);
}

bool ClassMemory::solve(bool now) {
  if (changes_ > 0 && (now || (judging_ == 0 && changes_ * kShare >= count())) && !awaits()) fit();
  return !std::exchange(told_, true);
}

int ClassMemory::any_of(int label) {
  std::int64_t left = random_.below(counts_[std::size_t(label)]);
  for (std::size_t place = 0;; ++place) {
    if (kept_[place].label == label && left-- == 0) return int(place);
  }
}

int ClassMemory::place_for(int label, bool wrong) {
  const std::int64_t mine = counts_[std::size_t(label)], seen = ++seen_[std::size_t(label)];
  if (count() < options_.places) return int(count());
  const auto largest = std::ranges::max_element(counts_);
  if (mine < *largest) return any_of(int(largest - counts_.begin()));
  return wrong || random_.below(seen) < mine ? any_of(label) : -1;
}

at::Tensor ClassMemory::features_of(std::span<const float> input) const {
  const at::Tensor sample = at::from_blob(const_cast<float*>(input.data()),
                                          {1, frame_.channels, frame_.height, frame_.width});
  return (body_ ? body_->forward({sample}).outputs[0] : sample).flatten();
}

void ClassMemory::put(int place, int label, double seconds, std::span<const float> input) {
  const c10::NoGradGuard no_grad;
  if (place < count()) {
    --counts_[std::size_t(kept_[std::size_t(place)].label)];
  } else {
    kept_.emplace_back();
  }
  kept_[std::size_t(place)] = {label, seconds};
  ++counts_[std::size_t(label)];
  features_[place].copy_(features_of(input));
  const at::Tensor thumbnail = thumbnails_[place];
  Likeness::shrink(input, int(frame_.channels), int(frame_.height), int(frame_.width),
                   {thumbnail.mutable_data_ptr<float>(), std::size_t(thumbnail.numel())});
  relate(place);
  ++changes_;
}

void ClassMemory::relate(int place) {
  const at::Tensor products = features_.narrow(0, 0, count()).mv(features_[place]);
  gram_[place].narrow(0, 0, count()).copy_(products);
  gram_.select(1, place).narrow(0, 0, count()).copy_(products);
}

void ClassMemory::remove(int place) {
  const c10::NoGradGuard no_grad;
  const std::int64_t last = count() - 1;
  --counts_[std::size_t(kept_[std::size_t(place)].label)];
  kept_[std::size_t(place)] = kept_.back();
  kept_.pop_back();
  ++changes_;
  if (place == last) return;
  features_[place].copy_(features_[last]);
  thumbnails_[place].copy_(thumbnails_[last]);
  relate(place);
}

void ClassMemory::forget_late(double seconds) {
  const double from = seconds - std::min(options_.late_s, (seconds - began_) / 2);
  for (int place = int(count()) - 1; place >= 0; --place) {
    const Kept& kept = kept_[std::size_t(place)];
    if (kept.label == label_ && kept.seconds > from) remove(place);
  }
}

bool ClassMemory::awaits() const {
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    if (counts_[label] == 0 && options_.known.knows(label)) return true;
  }
  return count() == 0;
}

void ClassMemory::fit() {
  const c10::NoGradGuard no_grad;
  const std::int64_t n = count(), classes = std::int64_t(counts_.size());
  const auto taught =
      double(std::ranges::count_if(counts_, [](std::int64_t of) { return of > 0; }));
  const bool centred = layer_.size() > 1;  // a bias takes up the mean
  at::Tensor shares = at::empty({n}, at::kDouble), labels = at::empty({n, 1}, at::kLong);
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const int label = kept_[i].label;
    shares.mutable_data_ptr<double>()[i] = 1 / (taught * double(counts_[std::size_t(label)]));
    labels.mutable_data_ptr<std::int64_t>()[i] = label;
  }
  at::Tensor target = zeros(n, classes, at::kDouble).scatter_(1, labels, 1.0);
  at::Tensor unknown = at::zeros({classes}, at::kDouble);
  for (std::int64_t label = 0; label < classes; ++label) {
    if (counts_[std::size_t(label)] == 0) {
      unknown[label] = kUnknown;
    } else if (centred) {
      target.select(1, label).sub_(1 / taught);
    }
  }
  at::Tensor products = gram_.narrow(0, 0, n).narrow(1, 0, n).clone();
  if (centred) {
    const at::Tensor mean = products.mv(shares);
    const at::Tensor whole = mean.dot(shares);
    products += whole - mean.unsqueeze(0) - mean.unsqueeze(1);
  }
  const double size = std::max(1e-12, products.diagonal().dot(shares).item<double>());
  products.diagonal().add_(shares.reciprocal() * (kRidge * size / double(n)));
  const at::Tensor factor = std::get<0>(at::linalg_cholesky_ex(products));
  const at::Tensor solution = at::cholesky_solve(target, factor);
  double scale = 1;
  if (options_.scores && taught > 1) {
    const at::Tensor left_out =
        target + unknown - solution / at::cholesky_inverse(factor).diagonal().unsqueeze(1);
    double least = cross_entropy(left_out, labels, shares, scale);
    for (const double other : {2.0, 4.0, 8.0}) {
      const double loss = cross_entropy(left_out, labels, shares, other);
      if (loss < least) {
        least = loss;
        scale = other;
      }
    }
  }
  set_head(solution, shares, scale);
  know();
  changes_ = 0;
  told_ = false;
}

void ClassMemory::set_head(const at::Tensor& solution, const at::Tensor& shares, double scale) {
  const at::Tensor features = features_.narrow(0, 0, count());
  const at::Tensor by_frame = (solution * scale).to(at::kFloat).t();
  at::Tensor weight = by_frame.mm(features);
  head_ = {{layer_[0].name, weight}};
  if (layer_.size() == 1) return;
  const at::Tensor mean = features.t().mv(shares.to(at::kFloat));
  weight -= by_frame.sum(1, /*keepdim=*/true) * mean;
  at::Tensor bias = -weight.mv(mean);
  const auto taught =
      double(std::ranges::count_if(counts_, [](std::int64_t of) { return of > 0; }));
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    const double share = counts_[label] > 0 ? 1 / taught : options_.scores ? kUnknown : 0;
    bias[std::int64_t(label)] += scale * share;
  }
  head_.emplace_back(layer_[1].name, bias);
}

void ClassMemory::know() {
  const float* const all = thumbnails_.const_data_ptr<float>();
  const std::size_t values = std::size_t(thumbnails_.size(1));
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    std::vector<const float*> own;
    for (std::size_t place = 0; place < kept_.size(); ++place)
      if (kept_[place].label == int(label)) own.push_back(all + place * values);
    likeness_.learn(label, own, values);
  }
  std::string likeness = likeness_.json().dump();
  const std::lock_guard lock(mutex_);
  all_told_ = {counts_, all_told_.solved + 1, std::move(likeness)};
}

stages::StateDict ClassMemory::entries() const {
  if (count() == 0) return {};
  at::Tensor labels = at::empty({count()}), seen = at::empty({std::int64_t(seen_.size())});
  for (std::int64_t i = 0; i < count(); ++i) labels[i] = kept_[std::size_t(i)].label;
  for (std::int64_t i = 0; i < seen.numel(); ++i) seen[i] = double(seen_[std::size_t(i)]);
  return {{kFeatures, features_.narrow(0, 0, count()).clone()},
          {kThumbnails, thumbnails_.narrow(0, 0, count()).clone()},
          {kClasses, labels},
          {kSeen, seen}};
}

void ClassMemory::restore(const stages::StateDict& state) {
  const c10::NoGradGuard no_grad;
  const auto find = [&](const char* name) {
    const auto found = std::ranges::find(state, name, &stages::StateDict::value_type::first);
    return found == state.end() ? at::Tensor() : found->second;
  };
  const at::Tensor features = find(kFeatures), thumbnails = find(kThumbnails),
                   labels = find(kClasses), seen = find(kSeen);
  if (!features.defined() || !thumbnails.defined() || !labels.defined() || !seen.defined()) return;
  const std::int64_t n = labels.numel();
  if (n > options_.places || features.sizes() != at::IntArrayRef({n, features_.size(1)}) ||
      thumbnails.sizes() != at::IntArrayRef({n, thumbnails_.size(1)}) ||
      seen.numel() != std::int64_t(seen_.size()) || labels.min().item<float>() < 0 ||
      labels.max().item<float>() >= float(counts_.size()))
    return;
  features_.narrow(0, 0, n).copy_(features);
  thumbnails_.narrow(0, 0, n).copy_(thumbnails);
  gram_.narrow(0, 0, n).narrow(1, 0, n).copy_(features.mm(features.t()));
  for (std::int64_t i = 0; i < n; ++i) {
    // Its time was of another run: before all of this one's.
    kept_.push_back({int(labels[i].item<float>()), -1});
    ++counts_[std::size_t(kept_.back().label)];
  }
  for (std::int64_t i = 0; i < seen.numel(); ++i)
    seen_[std::size_t(i)] = std::int64_t(seen[i].item<float>());
  if (!awaits()) fit();
}

}  // namespace millrace::app
