#include "tools/app/console.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "engine/format.h"
#include "tools/app/assembly.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {
namespace {

/// "unexpected: since frame 400, local, at [24, 44, 12, 8] of 128x96".
std::string describe(const NoveltyEvent& event) {
  std::string text =
      "unexpected: since frame " + std::to_string(event.frame) + ", " + name_of(event.reason);
  if (event.has_box()) {
    text += engine::format(", at [%d, %d, %d, %d] of %dx%d", event.left, event.top, event.width,
                           event.height, event.across, event.down);
  }
  return text + (event.zone.empty() ? "" : ", zone " + event.zone);
}

}  // namespace

Console::Console(Request& request, Intake& intake, Learner& learner, Records& records,
                 Checkpoints& checkpoints, LiveView* page)
    : config(request.config),
      request_(request),
      intake_(intake),
      learner_(learner),
      records_(records),
      checkpoints_(checkpoints),
      page_(page),
      stdin_open_(config.task.labels == "-") {
  streams_.push_back({"source", "training is paused", intake.health});
  if (learner.targets) streams_.push_back({"task.stream", "no targets come", learner.targets});
}

void Console::look(bool last) {
  tell(roll_backs_.look(learner_.trainer.guard().status(), last));
  for (Stream& stream : streams_) tell_source(stream);
  tell_novelty();
  tell_dead_units();
  const std::string rate =
      config.monitor.fps > 0
          ? ""
          : learner_.rate_watch.look(intake_.seen_fps(), intake_.fps_by_stamps());
  if (!rate.empty()) tell("source: " + rate);
  if (const std::string change = learner_.overload.look(); !change.empty())
    tell("overload: " + change);
  if (records_.lines) records_.lines->write();
  tell_failure("checkpoint", checkpoints_.error(), checkpoint_error_);
  tell_failure("log", records_.log_error(), log_error_);
  if (page_) {
    page_->obey();
    if (const std::string line = page_->take_note(); !line.empty()) complain(line);
  }
  hear_labels();
  tell_alerts();
}

void Console::tell_alerts() {
  const std::string failed = records_.alerts ? records_.alerts->last_error() : "";
  if (failed != alert_error_) tell("alert: " + (alert_error_ = failed));
}

void Console::tell_failure(const std::string& output, const std::string& now, std::string& before) {
  if (before.empty() != now.empty()) tell(output + ": " + (now.empty() ? "written again" : now));
  before = now;
}

void Console::tell_dead_units() {
  constexpr int kMany = 4;  // reported if at least one in kMany units is dead
  if (dead_told_) return;
  const std::vector<engine::DeadUnits> stages = learner_.trainer.now().dead_units;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto& [dead, units] = stages[stage];
    if (dead == 0 || kMany * dead < units) continue;
    dead_told_ = true;
    return tell(engine::format(
        "units: %d of %d in stage %zu are dead (their ReLU always outputs 0); a norm before it or "
        "leaky-relu keeps them alive (partime-cnn: model.norm = \"instance\")",
        dead, units, stage));
  }
}

void Console::tell_novelty() {
  const Novelty& novelty = records_.novelty;
  const bool now = novelty.in_event();  // read before the events, which it may end
  if (novelty.events() != events_) {
    for (const NoveltyEvent& event : novelty.latest())
      if (event.event > events_) tell(describe(event));
    events_ = novelty.events();
  }
  if (in_event_ && !now)
    tell(engine::format("back to normal; the deviation reached %.1f", novelty.event_peak()));
  in_event_ = now;
}

void Console::tell_source(Stream& stream) {
  const io::StreamHealth& health = *stream.health;
  for (const std::string& line : health.take_notes()) complain(stream.name + ": " + line);
  const bool connected = health.connected.load();
  if (connected == stream.connected) return;
  stream.connected = connected;
  if (connected) {
    const std::int64_t attempts =
        health.attempts.load() - std::exchange(stream.attempts, health.attempts);
    tell(stream.name + ": back after " + std::to_string(attempts) +
         (attempts == 1 ? " attempt" : " attempts"));
  } else {
    tell(stream.name + ": away: " + health.last_error() + "; " + stream.away);
    if (&stream != &streams_.front()) return;
    const auto event = records_.novelty.lose_camera(intake_.queue.received());
    if (event && records_.alerts) records_.alerts->raise({.event = *event});
  }
}

void Console::complain(const std::string& line) {
  constexpr int kAtOnce = 10;  // then one per second: a program may send thousands
  const auto now = std::chrono::steady_clock::now();
  ++complaints_;
  if (complaints_ > kAtOnce && now - complained_at_ < std::chrono::seconds(1)) {
    ++untold_;
    return;
  }
  complained_at_ = now;
  tell(line + (untold_ > 0 ? " (and " + std::to_string(untold_) + " more)" : ""));
  untold_ = 0;
}

void Console::hear_labels() {
  constexpr std::size_t kLongest = 4096;
  constexpr int kBlocks = 16;  // endless input must not block the caller
  const auto hear = [&] {
    const std::string wrong = stdin_line_.empty() ? "" : request_.live_labels->hear(stdin_line_);
    if (!wrong.empty()) complain("task.labels: " + wrong);
    stdin_line_.clear();
  };
  char bytes[kLongest];
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (int block = 0; stdin_open_ && block < kBlocks && poll(&input, 1, 0) > 0; ++block) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    for (ssize_t i = 0; i < count; ++i)
      if (bytes[i] == '\n')
        hear();
      else if (stdin_line_.size() <= kLongest)
        stdin_line_ += bytes[i];
    stdin_open_ = count > 0;
    if (!stdin_open_) hear();  // a last line without newline
  }
}

std::string Console::status(bool verbose) {
  const engine::Reading r = learner_.trainer.monitor().read();
  const engine::Verdict verdict = learner_.real_time.verdict(r);
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - shown_at_).count();
  const engine::FateCounts fates = learner_.trainer.monitor().tally().counts();
  const std::int64_t trained = fates.trained, every = learner_.overload.train_every(),
                     dropped = intake_.queue.dropped();
  const RunLog& log = records_.log;
  std::string text = engine::format("frame %ld  ", request_.resumed.frames + trained);
  if (page_ && page_->paused())
    text += "paused";
  else if (trained == shown_ && fates.without_target > without_target_)
    text += request_.live_labels ? "waiting for a label" : "no targets come";
  else
    text += engine::format("%.1f fps", double(trained - shown_) / std::max(1e-9, seconds));
  if (verbose) {
    text += "  " + engine::rule_text(r, verdict) +
            engine::format("  latency %.0f/%.0f ms", r.latency_p50, r.latency_p99);
  } else if (verdict.judged) {
    text += verdict.holds ? "  keeps up" : "  cannot keep up: " + verdict.reason;
  }
  if (verbose || dropped > 0) text += "  dropped " + std::to_string(dropped);
  if (const double loss = log.network().recent(); verbose && log.network().count() > 0) {
    text += std::isfinite(loss) ? engine::format("  loss %.4f", loss) : "  loss not finite";
    const Standing standing = log.standing();
    if (*standing.strongest && standing.times > 0 && std::isfinite(standing.times))
      text += " (" + engine::times_better(standing.times) + " the " + standing.strongest + ")";
  }
  if (events_ > 0) text += "  events " + std::to_string(events_);
  if (const Answers* const answers = records_.answers.get()) {
    const Answer answer = answers->now();
    if (const std::string name = answers->name(answer); !name.empty())
      text += "  " + name + (answer.neither ? "" : engine::format(" %.2f", answer.probability));
  }
  shown_ = trained;
  without_target_ = fates.without_target;
  shown_at_ = now;
  if (verbose && fates.replayed > 0) text += "  replayed " + std::to_string(fates.replayed);
  if (every > 1) text += "  1 in " + std::to_string(every) + " learned";
  return text;
}

std::string Console::reload() {
  if (!request_.options.read_again) return "there is no file to read";
  Config next = config;
  std::string changed, left;
  engine::TrainerOptions options;
  try {
    const Config fresh = as_ranks_run(request_.options.read_again(), request_.options.ranks);
    assemble(fresh, configured_shape(fresh));  // finds errors that a restart would
    require_outputs(fresh, request_.options.trace);
    for (const auto& [key, before, after] : differences(config, fresh)) {
      const bool now = applies(key);
      std::string& list = now ? changed : left;
      list += (list.empty() ? "" : ", ") + key;
      const bool set = fresh.places.contains(key);
      if (before != after)
        list += " " + before + " -> " + after;
      else if (!after.empty())
        list += set ? " is set" : " is no longer set";
      if (!now) continue;
      next.set(key, after);
      if (!set) next.places.erase(key);
    }
    require_outputs(next, request_.options.trace);  // beside those that need a restart
    Config chosen = next;                           // without its start, which may be gone
    chosen.weights.file.clear();
    chosen.checkpoint.resume = false;
    chosen.model.out_channels = request_.running().model.out_channels;  // files may have others now
    chosen.places.try_emplace("model.out_channels", chosen.name);
    options = assemble(chosen, intake_.shape());
  } catch (const std::exception& error) {
    return std::string(error.what()) + "; nothing has changed";
  }
  if (next.optimizer.lr != config.optimizer.lr ||
      next.places.contains("optimizer.lr") != config.places.contains("optimizer.lr"))
    learner_.rate =
        stages::first_rate(options.optimizer, options.correction) / learner_.first_rate();
  if (next.monitor.fps != config.monitor.fps)
    learner_.trainer.monitor().set_fps(next.monitor.fps > 0 ? next.monitor.fps
                                                            : intake_.seen_fps());
  if (next.checkpoint.every != config.checkpoint.every)
    checkpoints_.writer->set_every(next.checkpoint.every);
  config = next;
  request_.set_running(as_run(std::move(next), options));
  if (changed.empty()) changed = "nothing has changed";
  return changed + (left.empty() ? "" : "; needs a restart: " + left);
}

bool Console::applies(const std::string& key) const {
  if (key == "optimizer.lr")
    return learner_.first_rate() > 0 && !learner_.memory && weights_are_apart(config);
  if (key == "checkpoint.every") return checkpoints_.writer != nullptr;
  constexpr std::array<std::string_view, 5> kOthers = {
      "monitor.fps", "output.report", "output.weights", "output.loss_plot", "output.prediction"};
  return std::ranges::find(kOthers, key) != kOthers.end();
}

}  // namespace millrace::app
