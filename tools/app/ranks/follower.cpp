#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "stages/safetensors.h"
#include "tools/app/assembly.h"
#include "tools/app/learner.h"
#include "tools/app/provenance.h"
#include "tools/app/ranks/rank_feeds.h"
#include "tools/app/ranks/rank_grid.h"
#include "tools/app/ranks/rank_letters.h"
#include "tools/app/run.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

Config of_copy(Config config, int copy) {
  if (copies_of(config) == 1) return config;
  config.task.classes = class_names(config, configured_labels(config));  // the first source's
  config.source.uri = config.source.uris[std::size_t(copy)];
  return config;
}

/// Opens the config's source for samples of this size. Throws ConfigError, io::SourceError.
std::unique_ptr<Intake> open_intake(const Config& config, const stages::ImageShape& sample) {
  auto intake = std::make_unique<Intake>(config);
  const stages::ImageShape shape = intake->shape();
  const std::string ours = io::size_text(shape.width, shape.height),
                    first = io::size_text(sample.width, sample.height);
  if (ours != first) {
    throw config.error("source.uris", "frames of " + io::redacted(config.source.uri) + " are " +
                                          ours + ", the first source's " + first +
                                          ": set source.width and source.height");
  }
  return intake;
}

class NoFeed final : public engine::Feed {
 public:
  Status poll(std::chrono::microseconds) override { return Status::end; }
  void take(engine::Sample&) override {}
};

class Follower {
 public:
  Follower(engine::Exchange& exchange, RankGrid& grid, const Config& config, RankPlan plan)
      : exchange_(exchange),
        grid_(grid),
        config_(of_copy(config, grid.copy())),
        intake_(leads() && grid.part() == 0 ? open_intake(config_, plan.sample) : nullptr),
        trainer_(options_of(config, std::move(plan))) {
    // All copies of a pipeline have the same weights; the first writes them.
    if (config.checkpoint.dir.empty() || grid.copy() > 0) return;
    checkpointer_ = std::make_unique<engine::Checkpointer>(
        config.pipeline.stages, config.checkpoint.every,
        [this](int stage) { return trainer_.checkpoint(stage); },
        [](const stages::StateDict&, std::int64_t) {});
    checkpointer_->pass_on(
        [this, stages = config.pipeline.stages](engine::Checkpointer::Part part) {
          part.stage += grid_.part() * stages;
          post(exchange_, 0, write(Word::part, part));
        });
  }

  void prepare() { trainer_.prepare(); }

  void learn(const std::function<bool()>& asked_to_stop) {
    do {
      auto running = std::async(std::launch::async, [&] { run(); });
      while (running.wait_for(50ms) != std::future_status::ready) look(asked_to_stop);
      running.get();
    } while (!leads() && trainer_.follow());
    if (!leads()) return;
    trainer_.dismiss_ranks();
    if (intake_) post(exchange_, 0, write(Word::source, end_source()));
    if (grid_.copy() == 0)
      post(exchange_, 0, letter(Word::share).put(stages::to_safetensors(trainer_.checkpoint())));
    await_posted(exchange_, 30s);
  }

 private:
  engine::TrainerOptions options_of(Config config, RankPlan plan) {
    // Rank 0 sends the initial weights, so only it needs the files.
    config.weights.file.clear();
    config.checkpoint.resume = false;
    engine::TrainerOptions options = assemble(config, plan.sample);
    options.cut = std::move(plan.cut);
    options.module_ms = std::move(plan.module_ms);
    options.weights = std::move(plan.weights);
    options.fps = plan.fps;
    grid_.share(config, options);
    options.rank_of_worker = config.pipeline.ranks;
    return options;
  }

  void run() {
    engine::PipelineOptions options{.rate = weights_are_apart(config_) ? &rate_ : nullptr};
    if (checkpointer_) {
      options.after_sample = [this](int stage, std::int64_t sample) {
        checkpointer_->after_sample(stage, sample);
      };
    }
    std::unique_ptr<engine::Feed> lockstep, feed = std::make_unique<NoFeed>();
    if (intake_) {
      feed_ = make_feed(config_, *intake_, trainer_);
      feed = std::make_unique<LockstepFeed>(*feed_, grid_.copies_group());
      if (grid_.tensor() > 1) {
        lockstep = std::move(feed);
        auto shared = std::make_unique<SharedFeed>(*lockstep, grid_.group(), trainer_);
        grid_.pipeline().on_end_of_stream = [to = shared.get()] { to->end(); };
        feed = std::move(shared);
      }
      intake_->start();
    } else if (leads()) {
      feed = std::make_unique<ReceivedFeed>(grid_.group(), trainer_);
    }
    outcome_ = trainer_.run(*feed, nullptr, std::move(options));
    if (intake_) grid_.pipeline().on_end_of_stream = nullptr;
  }
  SourceReport end_source() {
    intake_->stop();
    engine::FrameCounts frames = intake_->frames(outcome_);
    frames.rejected += outcome_.rejected + feed_->pending();
    const engine::Reading times = trainer_.monitor().read();
    return {config_.source.uri, frames, times.stage, times.handoff, intake_->error()};
  }
  bool leads() { return grid_.pipeline().rank() == 0; }

  void look(const std::function<bool()>& asked_to_stop) {
    grid_.beat();
    if (!told_ && asked_to_stop()) {
      told_ = true;
      post(exchange_, 0, letter(Word::stop));
    }
    while (const auto letter = next_letter(exchange_)) {
      engine::ByteReader reader(letter->text);
      if (reader.get<Word>() != Word::settings) continue;
      const auto settings = reader.get<RankSettings>();
      rate_.store(settings.rate, std::memory_order_relaxed);
      if (!checkpointer_) continue;
      if (settings.every != checkpointer_->every()) checkpointer_->set_every(settings.every);
      if (settings.asked != checkpointer_->asked()) checkpointer_->ask(settings.asked);
    }
  }

  engine::Exchange& exchange_;
  RankGrid& grid_;
  const Config config_;                   ///< with this copy's source
  const std::unique_ptr<Intake> intake_;  ///< null: another rank has it
  engine::Trainer trainer_;
  std::unique_ptr<FrameFeed> feed_;  ///< reads `intake_`
  engine::Outcome outcome_;          ///< of `feed_`
  std::atomic<double> rate_{1.0};
  std::unique_ptr<engine::Checkpointer> checkpointer_;
  bool told_ = false;
};

/// Rank 0 refuses the run; this rank exits with `code`.
struct Refused {
  int code;
};

/// Waits for `word` and returns what follows it. Throws Refused.
std::string await(engine::Exchange& exchange, Word word,
                  const std::function<bool()>& asked_to_stop) {
  constexpr auto kNoAnswer = 20s;
  std::optional<engine::Clock::time_point> asked;
  const auto look = [&] {
    if (!asked && asked_to_stop()) {
      asked = engine::Clock::now();
      post(exchange, 0, letter(Word::stop));
    }
    if (asked && engine::Clock::now() > *asked + kNoAnswer) {
      exchange.abandon();
      throw std::runtime_error("stopped while waiting for rank 0");
    }
  };
  for (;;) {
    const std::string text = await_letter(exchange, look).text;
    engine::ByteReader reader(text);
    const Word came = reader.get<Word>();
    if (came == word) return std::string(reader.rest());
    if (came == Word::refused) throw Refused{reader.get<int>()};
  }
}

void fail(engine::Exchange& exchange, const std::exception& error) {
  post(exchange, 0, letter(Word::failed).put(exit_code_of(error)).put(std::string(error.what())));
}

/// The number of processes in the launcher's variables: Open MPI's, or PMI's.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* const size = std::getenv(name)) return std::atoi(size);
  // srun --mpi=pmix sets a rank, but only SLURM's own variable has the number of tasks.
  const char* const tasks = std::getenv("PMIX_RANK") ? std::getenv("SLURM_NTASKS") : nullptr;
  return tasks ? std::atoi(tasks) : 1;
}

/// MPI blocks while it waits for ranks that don't start. A failing exit code makes the launcher end
/// these, too; after 0 they would wait for this one.
void watch_start(const Waits& waits, const std::stop_token& started) {
  constexpr char kWhom[] = "the other ranks to start";
  while (!started.stop_requested()) {
    std::this_thread::sleep_for(50ms);
    if (started.stop_requested() || !waits(kWhom)) continue;
    std::fprintf(stderr, "stopped while waiting for %s\n", kWhom);
    std::_Exit(1);
  }
}

}  // namespace

std::unique_ptr<engine::Exchange> launched_ranks(const Waits& waits) {
  const int processes = launched_processes();
  if (processes <= 1) return nullptr;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  std::string why;
  for (const char* folder : {".", "../lib/millrace"}) {
    const std::string file = program.parent_path() / folder / "libmillrace_mpi.so";
    // MPI's own plug-ins need its symbols to be global.
    void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!module) {
      if (why.empty()) why = dlerror();
      continue;
    }
    using Make = engine::Exchange* (*)();
    const auto make = reinterpret_cast<Make>(dlsym(module, "millrace_make_exchange"));
    if (!make) continue;
    const std::jthread watch([&](const std::stop_token& started) {
      if (waits) watch_start(waits, started);
    });
    return std::unique_ptr<engine::Exchange>(make());
  }
  throw ConfigError(std::to_string(processes) +
                    " processes were launched, but this build has no MPI: " + why);
}

int follow(engine::Exchange& exchange, const std::function<Config()>& read,
           const std::function<bool()>& asked_to_stop) try {
  Config config;
  try {
    config = as_ranks_run(read(), &exchange);
    post(exchange, 0, hello(config));
  } catch (const ConfigError& error) {
    fail(exchange, error);
  }
  const auto awaited = [&](Word word) { return await(exchange, word, asked_to_stop); };
  RankGrid grid(exchange, config, read_gpus(engine::ByteReader(awaited(Word::join))));
  auto plan = read_as<RankPlan>(engine::ByteReader(awaited(Word::plan)));
  std::unique_ptr<Follower> follower;
  try {
    follower = std::make_unique<Follower>(exchange, grid, config, std::move(plan));
    follower->prepare();
    post(exchange, 0, letter(Word::ready).put(host_name()).put(std::int64_t(getpid())));
  } catch (const std::exception& error) {
    fail(exchange, error);
  }
  awaited(Word::go);
  follower->learn(asked_to_stop);
  return 0;
} catch (const Refused& refused) {
  return refused.code;
}

void refuse_ranks(engine::Exchange& exchange, int code) {
  for (int rank = 1; rank < exchange.ranks(); ++rank)
    post(exchange, rank, letter(Word::refused).put(code));
  await_posted(exchange);
}

}  // namespace millrace::app
