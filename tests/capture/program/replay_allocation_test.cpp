// Learning by step programs allocates nothing once it is under way, neither the engine nor LibTorch
// below it: every call of malloc and its like is counted, in whatever library and thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/monitor/loss_history.h"
#include "engine/pipeline/pinning.h"
#include "engine/schedule/registry.h"
#include "stages/tensor_split.h"
#include "tests/engine/trained.h"

namespace {
std::atomic<long> allocations{0};
}

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t align, std::size_t bytes);

#define COUNTED(name, parameters, ...) \
  void* name parameters {              \
    ++allocations;                     \
    return __libc_##name(__VA_ARGS__); \
  }
COUNTED(malloc, (std::size_t bytes), bytes)
COUNTED(calloc, (std::size_t count, std::size_t bytes), count, bytes)
COUNTED(realloc, (void* memory, std::size_t bytes), memory, bytes)
COUNTED(memalign, (std::size_t align, std::size_t bytes), align, bytes)
void* aligned_alloc(std::size_t align, std::size_t bytes) {
  return memalign(align, bytes);
}
int posix_memalign(void** memory, std::size_t align, std::size_t bytes) {
  *memory = memalign(align, bytes);
  return *memory ? 0 : ENOMEM;
}
}

namespace millrace::engine {
namespace {

TrainerOptions options_of(const std::string& schedule, const std::vector<int>& cut,
                          std::vector<int> threads, const std::string& correction = "none") {
  TrainerOptions options = small(schedule, int(cut.size()) + 1, cut);
  options.capture = Capture::graph;
  options.optimizer = {.kind = "adam", .lr = 1e-3};
  options.correction.kind = correction;
  options.threads = std::move(threads);
  return options;
}

void expect_no_allocation(const TrainerOptions& options) {
  Trainer trainer(options);
  MeasuringFeed feed(200, 590, 600, [] { return allocations.load(); });
  struct History final : Observer {
    void predicted(Sample&, float loss) override { losses.add(loss); }
    LossHistory losses;
  } history;
  ActionLog actions(options.stages, 100);  // little enough to go round many times
  trainer.run(feed, &history, {.actions = &actions});
  ASSERT_TRUE(trainer.now().recording.on);
  EXPECT_GT(actions.lost(), 0);
  EXPECT_EQ(feed.after - feed.before, 0) << options.schedule << ", " << options.stages
                                         << " stages, correction " << options.correction.kind;
}

TEST(Replay, AllocatesNothingInAnyScheduleAndWithAnyCorrection) {
  for (const std::string& schedule : schedule_names())
    expect_no_allocation(options_of(schedule, {4}, {}));
  for (const char* kind :
       {"discrepancy", "weight-prediction", "gap-aware", "dc-asgd", "local", "deep-supervision"})
    expect_no_allocation(options_of("partime", {4}, {}, kind));
  // A stage's threads want cores of their own.
  if (usable_cores() > 1) expect_no_allocation(options_of("partime", {}, {2}));
  // Large weights' gradients wait for the update.
  TrainerOptions options = options_of("partime", {3}, {});
  options.network = stages::build_network(kLargeWeights, kShape);
  options.weights = stages::initial_state(*options.network, 7);
  expect_no_allocation(options);
}

/// Whose other part is nothing.
class Alone final : public stages::Reducer {
 public:
  void add_up(std::span<float>, int) override {}
};

TEST(Replay, AllocatesNothingWhereRanksShareModules) {
  for (const char* schedule : {"partime", "pb", "gpipe"}) {
    TrainerOptions options = options_of(schedule, {4}, {});
    const stages::TensorSplit split(options.network, options.cut, 2);
    options.weights = split.part_of(options.weights, 0);
    options.network = split.part(std::make_shared<Alone>());
    expect_no_allocation(options);
  }
}

}  // namespace
}  // namespace millrace::engine
