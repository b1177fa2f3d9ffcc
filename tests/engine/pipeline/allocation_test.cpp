// The engine itself allocates nothing in a step: every operator new is counted while a long run of
// empty steps passes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/monitor/loss_history.h"
#include "engine/pipeline/pipeline.h"
#include "tests/engine/counted_feed.h"
#include "tests/engine/empty_step.h"

namespace {
std::atomic<long> allocations{0};
}

void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t align) {
  ++allocations;
  const std::size_t replica_id = std::size_t(align);
  if (void* p = std::aligned_alloc(replica_id, (size + replica_id - 1) / replica_id * replica_id))
    return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace millrace::engine {
namespace {

class History final : public Observer {
 public:
  void predicted(Sample&, float loss) override { losses_.add(loss); }

 private:
  LossHistory losses_;
};

void expect_no_allocation(const std::string& name, ActionLog* actions) {
  const Schedule schedule = make_schedule(name, {.stages = 4});
  EmptyStep step;
  MeasuringFeed feed(1000, 2900, 3000, [] { return allocations.load(); });
  History history;
  Monitor monitor({1, 1, 1, 1}, 100.0);
  Pipeline(schedule, {&step, &step, &step, &step}, feed, &history, monitor, {.actions = actions})
      .run();
  EXPECT_EQ(feed.after, feed.before) << name;
}

TEST(Engine, AllocatesNothingInAStep) {
  for (const std::string& name : schedule_names()) expect_no_allocation(name, nullptr);
}

TEST(Engine, RecordsItsActionsWithoutAllocating) {
  for (const std::string& name : schedule_names()) {
    ActionLog actions(4, 1000);  // little enough to go round many times
    expect_no_allocation(name, &actions);
    EXPECT_GT(actions.lost(), 0) << name;
  }
}

}  // namespace
}  // namespace millrace::engine
