#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "io/queue/targets.h"
#include "tools/app/assembly.h"
#include "tools/app/config/task.h"
#include "tools/app/feeds/next_frame_feed.h"
#include "tools/app/feeds/teacher_feed.h"
#include "tools/app/learner.h"
#include "tools/app/provenance.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {
namespace {

engine::TrainerOptions complete(engine::TrainerOptions options, const Request& request,
                                const Intake& intake, RankTeam* team) {
  const Config& config = request.config;
  const TargetFrom target = task_type(config.task.kind).target;
  if (options.frame() != intake.shape()) options = assemble(config, intake.shape());
  const bool told = request.labels || request.live_labels || intake.given ||
                    (!config.weights.learn && !config.task.classes.empty());
  if (target == TargetFrom::label && !told)
    require_classes(config, *options.network, intake.info.classes);
  options.fps = intake.fps();
  if (team) team->grid().share(config, options);
  options.rank_of_worker = config.pipeline.ranks;
  // A live stream's next frame is predicted before it arrives; a teacher runs beside the stages.
  const bool comes_late =
      (target == TargetFrom::later_frame && intake.live) || target == TargetFrom::teacher;
  options.late_targets = comes_late && config.pipeline.replicas.empty() && !options.exchange;
  if (const GivenStream* const given = intake.given.get()) {
    options.input_as_bytes = options.target_as_bytes = false;
    if (given->adjust) given->adjust(options);
  }
  return options;
}

/// Gives frames targets: labels, masks of the part in view, or another stream's frames of the
/// target's size, whose health is `second`. Empty: frames or the task bring them. Throws
/// ConfigError, io::SourceError.
io::Teller make_teller(const Request& request, const Intake& intake,
                       const stages::ImageShape& target,
                       std::shared_ptr<const io::StreamHealth>& second) {
  const Config& config = request.config;
  if (intake.given) return {};
  if (request.labels) return io::teller_of(*request.labels);
  if (request.live_labels) return io::teller_of(request.live_labels);
  if (!config.task.masks.empty()) {
    return check_key<io::MaskError>(config, "task.masks", [&] {
      return io::mask_teller(config.task.masks, int(target.channels - channels_before(config)),
                             resizer_options(config, intake.info), intake.info.width,
                             intake.info.height);
    });
  }
  if (config.task.stream.empty()) return {};
  io::SourceOptions options = source_options(config);
  options.uri = config.task.stream;
  options.width = int(target.width);
  options.height = int(target.height);
  std::unique_ptr<io::Source> source = io::open_source(options);
  const bool live = intake.info.live || source->info().live;
  second = source->health();
  return io::stream_teller(
      std::move(source),
      {.width = options.width, .height = options.height, .fit = io::fit_of(config.source.fit)},
      live);
}

/// The seed of random choices; a resumed run doesn't repeat the earlier ones.
std::uint64_t seed_of(const Request& request) {
  return request.config.weights.seed + std::uint64_t(request.resumed.frames);
}

/// Null: replay.kind is not "ridge". Labels that last until the next one come from people.
std::unique_ptr<ClassMemory> make_memory(const Request& request,
                                         const engine::TrainerOptions& assembled,
                                         const engine::Trainer& trainer, const Likeness& known) {
  constexpr double kLate = 3;                  // seconds a person takes to see a change and click
  constexpr double kFollowing = 2;             // seconds that a single label is likely to hold
  constexpr std::chrono::seconds kLesson(10);  // enough to know a scene by
  const Config& config = request.config;
  if (replay_of(config, *assembled.network) != "ridge") return nullptr;
  const bool lasting = request.live_labels || (request.labels && request.labels->lasting());
  auto memory = std::make_unique<ClassMemory>(
      assembled.network, trainer.state(),
      ClassMemoryOptions{.places = config.replay.size,
                         .seed = seed_of(request),
                         .late_s = lasting ? kLate : 0,
                         .following_s = lasting ? 0 : kFollowing,
                         .scores = stages::Loss(config.task.loss).scores(),
                         .known = known});
  memory->restore(assembled.weights);
  if (request.live_labels) request.live_labels->remember(kLesson);
  return memory;
}

}  // namespace

std::unique_ptr<FrameFeed> make_feed(const Config& config, Intake& intake,
                                     const engine::Trainer& trainer) {
  const bool given = intake.given && intake.given->targets;
  const TargetFrom target = given ? TargetFrom::teller : task_type(config.task.kind).target;
  const bool late = trainer.options().late_targets;
  const int slots = trainer.schedule().slots();
  io::FrameQueue& queue = intake.queue;
  io::Resizer& resizer = intake.resizer;
  switch (target) {
    case TargetFrom::later_frame:
      return std::make_unique<NextFrameFeed>(
          queue, resizer, Ahead{config.task.horizon, trainer.options().context}, late, slots);
    case TargetFrom::teacher:
      return std::make_unique<TeacherFeed>(
          queue, resizer, Teacher(config, intake.shape(), trainer.options().output()), late, slots);
    default:
      return std::make_unique<FrameFeed>(queue, resizer, target);
  }
}

Learner::Learner(Request& request, Intake& intake, RankTeam* team,
                 const std::atomic<bool>& stopping)
    : libraries_bytes(resident_bytes("VmRSS")),
      assembled(complete(std::move(request.trainer), request, intake, team)),
      trainer(assembled),
      known(Likeness::from(nlohmann::json::parse(request.resumed.about["taught"], nullptr, false))),
      memory(make_memory(request, assembled, trainer, known)),
      labels(request.live_labels),
      unfit(assembled.weights.empty() || !request.config.weights.learn
                ? ""
                : unfit_state(assembled.weights, checkpoint())),
      feed(make_feed(request.config, intake, trainer)),
      overload(request.config, trainer, intake.live),
      rate_watch(trainer.monitor()) {
  assembled.weights.clear();
  request.set_running(as_run(request.config, assembled));
  io::Teller teller = make_teller(request, intake, trainer.options().output(), targets);
  if (teller.tell) intake.source = io::with_teller(std::move(intake.source), std::move(teller));
  const auto& again = request.config.replay;
  if (const auto kind = replay_kind(again.kind)) {
    const ReplayOptions options{*kind, again.size, again.share, seed_of(request)};
    replay = std::make_unique<ReplayFeed>(trainer, *feed, intake.live, options);
  }
  if (!team) return;
  RankGrid& grid = team->grid();
  team->prepare(trainer, intake.fps());
  if (grid.copies() > 1)
    lockstep = std::make_unique<LockstepFeed>(*feed, grid.copies_group(), &stopping);
  if (grid.tensor() > 1)
    shared_feed = std::make_unique<SharedFeed>(samples(), grid.group(), trainer);
  if (weights_are_apart(request.config)) return;
  grid.pipeline().on_end_of_stream = [this] {
    if (lockstep) lockstep->end();
    if (shared_feed) shared_feed->end();
  };
}

void Learner::forget(double seconds) {
  if (!memory || !labels) return;
  for (const int label : labels->take_forgotten()) memory->forget(label, seconds);
}

void Learner::recall(bool all) {
  if (all) forget(0);  // asked for since the last frame
  if (memory && memory->solve(all))
    trainer.set_fixed(trainer.schedule().stages - 1, memory->head());
}

stages::StateDict Learner::checkpoint(std::optional<int> stage) const {
  stages::StateDict state = stage ? trainer.checkpoint(*stage) : trainer.checkpoint();
  if (memory && stage.value_or(trainer.schedule().stages - 1) + 1 == trainer.schedule().stages)
    std::ranges::move(memory->entries(), std::back_inserter(state));
  return state;
}

engine::Feed& Learner::samples() {
  if (shared_feed) return *shared_feed;
  if (lockstep) return *lockstep;
  return replay ? static_cast<engine::Feed&>(*replay) : *feed;
}

}  // namespace millrace::app
