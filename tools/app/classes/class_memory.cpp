#include "tools/app/classes/class_memory.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace millrace::app {
namespace {

constexpr std::int64_t kShare = 8;  // solved anew when one in so many frames is new
constexpr double kApart = 0.19;     // seconds between frames that follow a labelled one
constexpr double kJump = 0.05;      // mean difference of two thumbnails that makes another scene
constexpr double kUnderWay = 1;     // seconds that a frame may take from its label to see()
constexpr double kLess = 0.4;       // a frame whose score is so much less has another class
constexpr char kFeatures[] = "optimizer.memory.features",
               kThumbnails[] = "optimizer.memory.thumbnails",
               kClasses[] = "optimizer.memory.classes", kSeen[] = "optimizer.memory.seen",
               kGroups[] = "optimizer.memory.groups", kPictures[] = "optimizer.memory.pictures";

/// All modules but the last; null if there are none.
std::unique_ptr<stages::Stage> body_of(const std::shared_ptr<const stages::Network>& network,
                                       const stages::StateDict& weights) {
  if (network->size() == 1) return nullptr;
  stages::StageOptions options;
  options.recompute = true;  // stores no autograd graph
  auto body = std::make_unique<stages::Stage>(
      network, stages::StageRange{0, network->size() - 1, true, false}, stages::OptimizerSpec{},
      at::TensorOptions(at::kCPU), options);
  body->restore(weights);
  return body;
}

}  // namespace

/// Ridge regression of frames' classes on their features, in closed form. Solved for as many
/// unknowns as there are frames. Classes weigh the same. Each feature counts by its deviation
/// within the classes: what changes while the class stays says little about it. Changes that say
/// nothing of the class, as of the light, should change no score.
class Ridge {
 public:
  /// `features` [n,f], float; `labels`: a class for each frame; `bias`: a bias takes up the mean;
  /// `changes` [m,f]: of features.
  Ridge(const at::Tensor& features, const std::vector<std::int64_t>& labels, std::int64_t classes,
        bool bias, const at::Tensor& changes)
      : labels_(at::tensor(labels, at::kLong).unsqueeze(1)),
        target_(at::zeros({labels_.size(0), classes}, at::kDouble).scatter_(1, labels_, 1.0)) {
    const at::Tensor counts = target_.sum(0), all = labels_.squeeze(1);
    known_ = counts.gt(0);
    taught_ = known_.sum().item<double>();
    shares_ = (taught_ * counts).reciprocal().index_select(0, all);
    const at::Tensor shares = shares_.to(at::kFloat),
                     means = (target_ * shares_.unsqueeze(1)).t().to(at::kFloat).mm(features);
    rates_ =
        features.addcmul(means.index_select(0, all), at::scalar_tensor(taught_, at::kFloat), -1)
            .square_()
            .t()
            .mv(shares);
    rates_ = (rates_ + rates_.mean().clamp_min(kTiny)).rsqrt_();
    mean_ = bias ? means.sum(0) : at::zeros_like(rates_);
    if (bias) target_ -= known_.to(at::kDouble) / taught_;
    scaled_ = at::cat({(features - mean_).mul_(rates_), changes * rates_});
    target_ = at::cat({target_, at::zeros({changes.size(0), classes}, at::kDouble)});
    const at::Tensor weights = at::cat(
        {shares_, at::full({changes.size(0)}, kChanges / double(changes.size(0)), at::kDouble)});

    at::Tensor gram = scaled_.mm(scaled_.t()).to(at::kDouble);
    const auto frames = std::int64_t(labels.size());
    const double size =
        std::max(kTiny, gram.diagonal().narrow(0, 0, frames).dot(shares_).item<double>());
    gram.diagonal().add_(weights.reciprocal() * (kRidge * size / double(frames)));
    const at::Tensor factor = std::get<0>(at::linalg_cholesky_ex(gram));
    solution_ = at::cholesky_solve(target_, factor);
    inverse_ = at::cholesky_inverse(factor);
  }

  /// The scores of `rows` [m] if these were left out: [m,classes], double.
  at::Tensor without(const at::Tensor& rows) const {
    const at::Tensor among = inverse_.index_select(0, rows).index_select(1, rows);
    return target_.index_select(0, rows) -
           at::cholesky_solve(solution_.index_select(0, rows),
                              std::get<0>(at::linalg_cholesky_ex(among)));
  }
  /// Each frame's scores if it were left out: [n,classes], double.
  at::Tensor left_out() const {
    return (target_.narrow(0, 0, labels_.size(0)) - errors())
        .masked_fill(known_.logical_not(), kUnknown);
  }
  /// Mean squared error of the scores of a frame that is left out.
  double error() const { return errors().square().sum(1).dot(shares_).item<double>(); }
  /// What makes the softmax of the scores as sure as it may be: each frame is scored as if it were
  /// left out.
  double sharpness() const {
    if (taught_ < 2) return 1;
    const at::Tensor scores = left_out();
    std::pair<double, double> best{};  // cross-entropy, sharpness
    for (const double sharpness : {1.0, 2.0, 4.0, 8.0}) {
      const at::Tensor logs = at::log_softmax(scores * sharpness, 1).gather(1, labels_).squeeze(1);
      const double loss = -logs.dot(shares_).item<double>();
      if (best.second == 0 || loss < best.first) best = {loss, sharpness};
    }
    return best.second;
  }
  /// Of the linear layer: [classes,f] and [classes], float. `scores`: a class without an example is
  /// less likely than any other; else its output is 0.
  at::Tensor weight(double sharpness) const {
    return (solution_ * sharpness).to(at::kFloat).t().mm(scaled_).mul_(rates_);
  }
  at::Tensor bias(const at::Tensor& weight, double sharpness, bool scores) const {
    const at::Tensor shares = at::where(known_, 1 / taught_, scores ? kUnknown : 0.0);
    return (shares * sharpness).to(at::kFloat) - weight.mv(mean_);
  }

 private:
  /// Of each frame's scores if it were left out: [n,classes].
  at::Tensor errors() const {
    return (solution_ / inverse_.diagonal().unsqueeze(1)).narrow(0, 0, labels_.size(0));
  }

  static constexpr double kRidge = 0.01;   ///< over the features' mean square, from their mean
  static constexpr double kChanges = 0.1;  ///< weight of all changes; that of all frames is 1
  static constexpr double kUnknown = -1;   ///< score of a class without an example; others sum to 1
  static constexpr double kTiny = 1e-12;   ///< of features that are all the same

  const at::Tensor labels_;        ///< [n,1]
  at::Tensor target_;              ///< [n+m,classes]
  at::Tensor known_;               ///< [classes]: whether there is an example
  double taught_ = 0;              ///< classes with examples
  at::Tensor shares_;              ///< [n]: the frames' weights, which sum to 1
  at::Tensor mean_, rates_;        ///< [f], float: subtracted, then multiplied
  at::Tensor scaled_;              ///< [n+m,f], float
  at::Tensor solution_, inverse_;  ///< [n+m,classes], [n+m,n+m]
};

ClassMemory::ClassMemory(std::shared_ptr<const stages::Network> network,
                         const stages::StateDict& weights, const ClassMemoryOptions& options)
    : options_(options),
      network_(std::move(network)),
      body_(body_of(network_, weights)),
      layer_(network_->parameters(network_->size() - 1, network_->size())),
      frame_(network_->shape(stages::kSample)),
      features_(at::zeros({options.places, layer_[0].shape[1]})),
      thumbnails_(
          at::zeros({options.places, std::int64_t(Likeness::values(int(frame_.channels)))})),
      pictures_(at::zeros({layer_[0].shape[0], frame_.channels, frame_.height, frame_.width})),
      known_features_(std::size_t(layer_[0].shape[0])),
      counts_(known_features_.size()),
      seen_(counts_.size()),
      random_(options.seed),
      unlabelled_until_(counts_.size(), -std::numeric_limits<double>::infinity()),
      likeness_(options.known) {
  kept_.reserve(std::size_t(options.places));
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    const std::span<const float> known = options.known.features(label);
    if (std::int64_t(known.size()) == features_.size(1))
      known_features_[label] = at::tensor(c10::ArrayRef(known.data(), known.size())).unsqueeze(0);
  }
  all_told_ = {counts_, 0, std::make_shared<const Likeness>(likeness_)};
  // LAPACK's first calls run alone: concurrent with a worker's they might choose other kernels.
  const at::Tensor factor = at::linalg_cholesky(at::eye(2, at::kDouble));
  at::cholesky_solve(factor, at::cholesky_inverse(factor));
}

void ClassMemory::see(std::span<const float> input, int label, int answer, double seconds) {
  if (judging_ > 0) --judging_;
  if (label >= 0 && seconds < unlabelled_until_[std::size_t(label)]) label = -1;
  if (label != label_) {
    if (label_ >= 0) forget_late(seconds);
    label_ = label;
    began_ = seconds;
    if (label >= 0 && label != labelled_ && counts_[std::size_t(label)] > 0) {
      if (changes_ > 0) fit();
      judging_ = kJudged;
    }
  }
  const bool follows = label < 0;
  if (follows) {
    if (seconds - group_began_ > options_.following_s || seconds - latest_ < kApart) return;
    if ((thumbnail_of(input) - group_picture_).abs().mean().item<float>() > kJump) {
      group_began_ = -std::numeric_limits<double>::infinity();
      return;
    }
  } else {
    labelled_ = label;
    group_began_ = seconds;
    if (options_.following_s > 0) group_picture_ = thumbnail_of(input);
    ++group_;
    ++seen_[std::size_t(label)];
  }
  latest_ = seconds;
  const int place = place_for(labelled_, answer != label, follows);
  if (place >= 0) put(place, {labelled_, seconds, group_, follows}, input);
}

void ClassMemory::forget(int label, double seconds) {
  unlabelled_until_[std::size_t(label)] = seconds + kUnderWay;
  forget_after(label, -std::numeric_limits<double>::infinity());
  seen_[std::size_t(label)] = 0;
  known_features_[std::size_t(label)].reset();
  if (labelled_ == label) labelled_ = -1;
  group_began_ = -std::numeric_limits<double>::infinity();
  judging_ = 0;
  fit();
}

bool ClassMemory::solve(bool now) {
  if (changes_ > 0 && (now || (judging_ == 0 && changes_ * kShare >= count()))) fit();
  return !std::exchange(told_, true);
}

int ClassMemory::any_of(int label) {
  const auto has = [&](bool follows) {
    return std::ranges::count_if(
        kept_, [&](const Kept& one) { return one.label == label && one.follows == follows; });
  };
  const bool follows = has(true) > 0;  // labelled frames are worth more
  std::int64_t left = random_.below(has(follows));
  for (std::size_t place = 0;; ++place) {
    const Kept& one = kept_[place];
    if (one.label == label && one.follows == follows && left-- == 0) return int(place);
  }
}

int ClassMemory::place_for(int label, bool wrong, bool follows) {
  const std::int64_t mine = counts_[std::size_t(label)];
  if (count() < options_.places) return int(count());
  const auto largest = std::ranges::max_element(counts_);
  if (mine < *largest) return any_of(int(largest - counts_.begin()));
  if (follows) return -1;
  return wrong || random_.below(seen_[std::size_t(label)]) < mine ? any_of(label) : -1;
}

at::Tensor ClassMemory::thumbnail_of(std::span<const float> input) const {
  at::Tensor thumbnail = at::empty({thumbnails_.size(1)});
  Likeness::shrink(input, int(frame_.channels), int(frame_.height), int(frame_.width),
                   {thumbnail.mutable_data_ptr<float>(), std::size_t(thumbnail.numel())});
  return thumbnail;
}

at::Tensor ClassMemory::features_of(std::span<const float> input) const {
  const at::Tensor sample = at::from_blob(const_cast<float*>(input.data()),
                                          {1, frame_.channels, frame_.height, frame_.width});
  return (body_ ? body_->forward({sample}).outputs[0] : sample).flatten();
}

void ClassMemory::put(int place, const Kept& kept, std::span<const float> input) {
  const c10::NoGradGuard no_grad;
  if (place < count())
    --counts_[std::size_t(kept_[std::size_t(place)].label)];
  else
    kept_.emplace_back();
  kept_[std::size_t(place)] = kept;
  ++counts_[std::size_t(kept.label)];
  features_[place].copy_(features_of(input));
  thumbnails_[place].copy_(thumbnail_of(input));
  at::Tensor picture = pictures_[kept.label];
  const at::Tensor newest = at::from_blob(const_cast<float*>(input.data()), picture.sizes());
  picture.lerp_(newest, 1.0 / double(counts_[std::size_t(kept.label)]));
  ++changes_;
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
}

void ClassMemory::forget_late(double seconds) {
  forget_after(label_, seconds - std::min(options_.late_s, (seconds - began_) / 2));
}

void ClassMemory::forget_after(int label, double seconds) {
  for (int place = int(count()) - 1; place >= 0; --place) {
    const Kept& kept = kept_[std::size_t(place)];
    if (kept.label == label && kept.seconds > seconds) remove(place);
  }
}

std::vector<std::int64_t> ClassMemory::believed(const Ridge& ridge) const {
  std::map<std::int64_t, std::vector<std::int64_t>> groups;
  for (std::int64_t place = 0; place < count(); ++place)
    groups[kept_[std::size_t(place)].group].push_back(place);
  std::vector<std::int64_t> all;
  for (const auto& [number, group] : groups) {
    const auto labelled =
        std::ranges::find(group, false, [&](auto at) { return kept_[std::size_t(at)].follows; });
    const at::Tensor scores = ridge.without(at::tensor(group, at::kLong))
                                  .select(1, kept_[std::size_t(group[0])].label)
                                  .contiguous();
    const double* const score = scores.const_data_ptr<double>();
    for (std::size_t i = 0; i < group.size(); ++i)
      if (labelled == group.end() || group[i] == *labelled ||
          score[i] > score[labelled - group.begin()] - kLess)
        all.push_back(group[i]);
  }
  return all;
}

at::Tensor ClassMemory::light_changes() const {
  const auto features = [&](const at::Tensor& picture) {
    return features_of({picture.const_data_ptr<float>(), std::size_t(picture.numel())});
  };
  std::vector<at::Tensor> all = {at::zeros({0, features_.size(1)})};
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    if (counts_[label] == 0) continue;
    const at::Tensor picture = pictures_[std::int64_t(label)], now = features(picture);
    for (const double light : {0.7, 1.4})
      all.push_back((features((picture * light).clamp_(0, 1)) - now).unsqueeze(0));
  }
  return at::cat(all);
}

Ridge ClassMemory::solved(const std::vector<std::int64_t>& rows) const {
  std::vector<std::int64_t> labels;
  for (const std::int64_t row : rows) labels.push_back(kept_[std::size_t(row)].label);
  std::vector<at::Tensor> features = {rows.size() == kept_.size()
                                          ? features_.narrow(0, 0, count())
                                          : features_.index_select(0, at::tensor(rows, at::kLong))};
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    if (!stands_in(label)) continue;
    labels.push_back(std::int64_t(label));
    features.push_back(known_features_[label]);
  }
  const at::Tensor all = features.size() == 1 ? features[0] : at::cat(features),
                   changes = light_changes();
  const auto with = [&](const at::Tensor& changes) {
    return Ridge(all, labels, std::int64_t(counts_.size()), layer_.size() > 1, changes);
  };
  constexpr double kSmall = 0.01, kAsGood = 2;  // else the light tells classes apart
  const Ridge any_light = with(changes);
  if (any_light.error() < kSmall) return any_light;
  const Ridge this_light = with(changes.narrow(0, 0, 0));
  return any_light.error() < kAsGood * this_light.error() ? any_light : this_light;
}

bool ClassMemory::contradicted(const Ridge& ridge) {
  const at::Tensor answers = ridge.left_out().argmax(1);
  std::int64_t judged = 0;
  std::vector<std::int64_t> taken(counts_.size());
  for (std::int64_t i = 0; i < count(); ++i) {
    if (counts_[std::size_t(kept_[std::size_t(i)].label)] < kJudged) continue;
    ++judged;
    ++taken[std::size_t(answers[i].item<std::int64_t>())];
  }
  bool any = false;
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    if (!stands_in(label) || taken[label] == 0 || 10 * taken[label] < judged) continue;
    known_features_[label].reset();
    any = true;
  }
  return any;
}

void ClassMemory::fit() {
  const c10::NoGradGuard no_grad;
  changes_ = 0;
  std::vector<std::int64_t> rows(kept_.size());
  if (rows.empty() && std::ranges::none_of(known_features_, &at::Tensor::defined))
    return know(rows);
  std::iota(rows.begin(), rows.end(), 0);
  std::optional<Ridge> ridge(solved(rows));
  if (contradicted(*ridge)) ridge.emplace(solved(rows));
  if (std::ranges::any_of(kept_, &Kept::follows)) {
    rows = believed(*ridge);
    ridge.emplace(solved(rows));
  }
  const double sharpness = options_.scores ? ridge->sharpness() : 1;
  const at::Tensor weight = ridge->weight(sharpness);
  head_ = {{layer_[0].name, weight}};
  if (layer_.size() > 1)
    head_.emplace_back(layer_[1].name, ridge->bias(weight, sharpness, options_.scores));
  know(rows);
  told_ = false;
}

void ClassMemory::know(const std::vector<std::int64_t>& rows) {
  const float* const all = thumbnails_.const_data_ptr<float>();
  const std::size_t values = std::size_t(thumbnails_.size(1));
  for (std::size_t label = 0; label < counts_.size(); ++label) {
    if (stands_in(label)) continue;
    std::vector<const float*> own;
    std::vector<std::int64_t> own_rows;
    for (const std::int64_t row : rows) {
      if (kept_[std::size_t(row)].label != int(label)) continue;
      own.push_back(all + std::size_t(row) * values);
      own_rows.push_back(row);
    }
    likeness_.learn(label, own, values);
    if (own.empty()) continue;
    const at::Tensor mean = features_.index_select(0, at::tensor(own_rows, at::kLong)).mean(0);
    likeness_.set_features(label, {mean.const_data_ptr<float>(), std::size_t(mean.numel())});
  }
  auto likeness = std::make_shared<const Likeness>(likeness_);
  const std::lock_guard lock(mutex_);
  all_told_ = {counts_, all_told_.solved + 1, std::move(likeness)};
}

stages::StateDict ClassMemory::entries() const {
  if (count() == 0) return {};
  std::vector<std::int64_t> labels, groups;  // from 1; negative: follows its labelled frame
  for (const Kept& one : kept_) {
    const auto first = std::ranges::find(kept_, one.group, &Kept::group) - kept_.begin() + 1;
    labels.push_back(one.label);
    groups.push_back(one.follows ? -first : first);
  }
  return {{kFeatures, features_.narrow(0, 0, count()).clone()},
          {kThumbnails, thumbnails_.narrow(0, 0, count()).clone()},
          {kClasses, at::tensor(labels, at::kFloat)},
          {kGroups, at::tensor(groups, at::kFloat)},
          {kPictures, pictures_.clone()},
          {kSeen, at::tensor(seen_, at::kFloat)}};
}

void ClassMemory::restore(const stages::StateDict& state) {
  const c10::NoGradGuard no_grad;
  const auto find = [&](const char* name) {
    const auto found = std::ranges::find(state, name, &stages::StateDict::value_type::first);
    return found == state.end() ? at::Tensor() : found->second;
  };
  const at::Tensor features = find(kFeatures), thumbnails = find(kThumbnails),
                   labels = find(kClasses), groups = find(kGroups), seen = find(kSeen),
                   pictures = find(kPictures);
  for (const at::Tensor& one : {features, thumbnails, labels, groups, seen, pictures})
    if (!one.defined()) return;
  const std::int64_t n = labels.numel();
  if (n < 1 || n > options_.places || features.sizes() != at::IntArrayRef({n, features_.size(1)}) ||
      thumbnails.sizes() != at::IntArrayRef({n, thumbnails_.size(1)}) ||
      labels.sizes() != at::IntArrayRef({n}) || groups.sizes() != at::IntArrayRef({n}) ||
      seen.sizes() != at::IntArrayRef({std::int64_t(seen_.size())}) ||
      pictures.sizes() != pictures_.sizes() || labels.min().item<float>() < 0 ||
      labels.max().item<float>() >= float(counts_.size()))
    return;
  features_.narrow(0, 0, n).copy_(features);
  thumbnails_.narrow(0, 0, n).copy_(thumbnails);
  pictures_.copy_(pictures);
  for (std::int64_t i = 0; i < n; ++i) {
    // Another run's time: before all of this one's.
    const auto group = std::int64_t(groups[i].item<float>());
    kept_.push_back({int(labels[i].item<float>()), -1, std::abs(group), group < 0});
    ++counts_[std::size_t(kept_.back().label)];
  }
  group_ = n;
  for (std::int64_t i = 0; i < seen.numel(); ++i)
    seen_[std::size_t(i)] = std::int64_t(seen[i].item<float>());
  fit();
}

}  // namespace millrace::app
