#include "io/source/live_labels.h"

#include <algorithm>
#include <stdexcept>

#include "io/source/labels.h"
#include "io/text/nearest_name.h"

namespace millrace::io {
namespace {

constexpr std::size_t kMostWaiting = 100'000;

class LiveTeller : public Teller {
 public:
  explicit LiveTeller(std::shared_ptr<LiveLabels> labels) : labels_(std::move(labels)) {}
  void tell(Frame& frame, std::int64_t number, std::chrono::nanoseconds) override {
    frame.label = labels_->of(number);
  }

 private:
  const std::shared_ptr<LiveLabels> labels_;
};

}  // namespace

std::string LiveLabels::hear(std::string_view text) {
  LabelRow row;
  try {
    row = parse_label(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  if (row.time) return "during a run a label is for a frame number, or for all frames from now on";
  int label = -1;
  if (row.name) {
    const auto found = std::find(classes_.begin(), classes_.end(), *row.name);
    if (found == classes_.end()) {
      const std::vector<std::string_view> names(classes_.begin(), classes_.end());
      const std::string told = row.name->substr(0, 40);
      std::string known;
      for (const std::string& name : classes_) known += (known.empty() ? "" : ", ") + name;
      return "unknown class \"" + told + "\"; there are " + known + "; the nearest is \"" +
             nearest_name(told, names) + "\"";
    }
    label = int(found - classes_.begin());
  }
  const std::lock_guard lock(mutex_);
  if (!row.frame) {
    now_ = label;
    return "";
  }
  const auto frame = std::int64_t(*row.frame);
  if (frame < next_) return "frame " + std::to_string(frame) + " has gone by";
  if (to_come_.size() == kMostWaiting)
    return "more than 100000 labels of frames that have not arrived yet";
  to_come_[frame] = label;
  return "";
}

std::string LiveLabels::now() const {
  const std::lock_guard lock(mutex_);
  return now_ < 0 ? "" : classes_[std::size_t(now_)];
}

int LiveLabels::of(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  next_ = number + 1;
  const auto told = to_come_.find(number);
  if (told == to_come_.end()) return now_;
  const int label = told->second;
  to_come_.erase(told);
  return label;
}

std::pair<std::size_t, std::int64_t> LiveLabels::waiting() const {
  const std::lock_guard lock(mutex_);
  return {to_come_.size(), to_come_.empty() ? -1 : to_come_.rbegin()->first};
}

std::unique_ptr<Teller> teller_of(std::shared_ptr<LiveLabels> labels) {
  return std::make_unique<LiveTeller>(std::move(labels));
}

}  // namespace millrace::io
