// Predictions on their way to a caller who asks for them.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::app {

/// A ring of predictions. If it is full, the last stage's worker waits. Written by that worker,
/// read by the caller.
class Results final : public engine::Observer {
 public:
  struct Entry {
    std::int64_t index = -1;  ///< of the sample: 0, 1, ...; -1: the run is over
    std::int64_t frame = -1;
    float loss = 0;
    engine::Clock::time_point captured;
  };

  /// `elements`: numbers in a prediction.
  Results(std::size_t elements, std::size_t places)
      : predictions_(places + 1, std::vector<float>(elements)), entries_(places) {}

  void predicted(engine::Sample& sample, float loss) override {
    const engine::SampleInfo& info = sample.info;
    // The caller may read one place while all the others wait.
    std::ranges::copy(sample.prediction(), place(info.index).begin());
    entries_.wait_enqueue({info.index, info.frame, loss, info.captured});
  }
  void close() { entries_.wait_enqueue({}); }

  bool take(Entry& entry, std::chrono::milliseconds patience) {
    return entries_.wait_dequeue_timed(entry, patience);
  }
  /// The latest entry's prediction, until the next take().
  const std::vector<float>& prediction(const Entry& entry) { return place(entry.index); }

 private:
  std::vector<float>& place(std::int64_t index) {
    return predictions_[std::size_t(index) % predictions_.size()];
  }

  std::vector<std::vector<float>> predictions_;
  moodycamel::BlockingReaderWriterCircularBuffer<Entry> entries_;
};

}  // namespace millrace::app
