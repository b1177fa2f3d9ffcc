// Once frames are learned from, no graph is made any more: that takes milliseconds, and memory that
// may be gone.
#include <gtest/gtest.h>

#include "tests/engine/trained.h"
#include "tests/host_device/host_device.h"

namespace millrace::engine {
namespace {

int graphs_made() {
  return host_device::calls()["cudaGraphInstantiateWithFlags"];
}

/// Waits now and then, ends, and has a spoiled stretch that the guard rolls back at.
class Uneven final : public CountedFeed {
 public:
  Uneven() : CountedFeed(223) {}
  Status poll(std::chrono::microseconds patience) override {
    const bool waits = next_ % 7 == 3 && !std::exchange(waited_, !waited_);
    return waits ? Status::wait : CountedFeed::poll(patience);
  }
  int begun_with = 0;

 private:
  void fill(std::int64_t n, Sample& sample) override {
    if (n == 1) begun_with = graphs_made();
    const at::Tensor x = spoiled_at(n, kShape, n >= 130 && n < 135).first;
    std::copy_n(x.const_data_ptr<float>(), x.numel(), sample.input().begin());
  }
  bool waited_ = false;
};

TEST(LateGraphs, NoneIsMadeOnceFramesAreLearnedFrom) {
  for (const std::string& schedule : guarded_schedules("gpipe")) {
    SCOPED_TRACE(schedule);
    TrainerOptions options = small(schedule, 3, {2, 5});
    options.capture = Capture::automatic;
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.devices.assign(3, {.cuda = true, .index = 0});
    options.guard = true;
    std::atomic<double> rate{1.0};
    std::atomic<std::int64_t> every{1};
    Trainer trainer(options);
    Uneven feed;
    PipelineOptions how;
    how.rate = &rate;
    how.train_every = &every;
    how.after_sample = [&](int, std::int64_t sample) {
      rate = sample % 50 < 25 ? 1.0 : 0.5;
      every = sample % 90 < 60 ? 1 : 3;
    };
    trainer.run(feed, nullptr, how);
    EXPECT_TRUE(trainer.now().recording.on);
    EXPECT_GE(trainer.guard().roll_backs(), 1);
    EXPECT_EQ(graphs_made(), feed.begun_with);
  }
}

}  // namespace
}  // namespace millrace::engine
