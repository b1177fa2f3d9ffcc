#include "tools/bindings/gst/learner.h"

#include <algorithm>
#include <utility>

#include "tools/app/feeds/run_source.h"

namespace millrace::gst {
namespace {

bool drops(const app::Config& config, const io::SourceInfo& info) {
  return app::drop_policy(config, app::paced_live(config, info) || info.live) == io::Drop::newest;
}

}  // namespace

Learner::Learner(LearnerOptions options, LearnerCalls calls)
    : options_(std::move(options)),
      calls_(std::move(calls)),
      drops_(gst::drops(options_.config, options_.source)),
      ahead_(app::reader_options(options_.config, options_.source).ahead),
      rate_(options_.rate),
      thread_([this] {
        sight_->learner = this;
        work();
      }) {}

Learner::~Learner() {
  stopping_ = true;
  mailbox_->end();
  thread_.join();
}

std::optional<std::array<int, 3>> Learner::shape() const {
  const std::lock_guard lock(mutex_);
  return shape_;
}

void Learner::work() {
  try {
    learn();
  } catch (const std::exception& error) {
    calls_.fail(error.what());
  }
  mailbox_->end();
  calls_.over();
  const std::lock_guard lock(sight_->mutex);
  sight_->learner = nullptr;
}

void Learner::learn() {
  auto run = std::make_unique<app::Run>(
      options_.config,
      app::RunOptions{.serve = !options_.serve.empty(),
                      .serve_at = options_.serve,
                      .open_source = [this] { return source_of(mailbox_, options_.source); }});
  {
    const std::lock_guard lock(mutex_);
    shape_ = run->shape();
  }
  for (const std::string& remark : run->remarks()) calls_.tell(remark);
  if (!run->page().empty()) calls_.tell("page: " + run->page());
  run->on_event(calls_.tell);
  run->on_prediction([sight = sight_](const app::Prediction& prediction) {
    const std::lock_guard lock(sight->mutex);
    if (sight->learner) sight->learner->see(prediction);
  });
  double rate = 1.0;
  run->on_tick([&] {
    if (stopping_) run->stop();
    if (rate_ != rate) run->set_rate(rate = rate_);
  });
  std::string failure;
  const auto failed = [&](const std::string& what) {
    failure += (failure.empty() ? "" : "; ") + what;
  };
  try {
    run->learn(options_.frames);
  } catch (const app::Wedged& error) {
    (void)run.release();  // its threads can't be joined
    throw;
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {  // a plug-in's
    failed("an exception of an unknown type");
  }
  for (const std::string& what : run->save()) failed(what);
  if (!run->source_error().empty()) failed(run->source_error());
  if (!failure.empty()) calls_.fail(failure);
  calls_.tell(run->summary());
}

void Learner::see(const app::Prediction& prediction) {
  latency_ms_.store(std::max(latency_ms(), prediction.latency_ms), std::memory_order_relaxed);
  // A prediction has the time of the frame that it predicts.
  const std::optional<Stamp> stamp = mailbox_->stamp_of(prediction.frame + ahead_);
  if (stamp) calls_.shown(prediction, *stamp, !drops_);
  mailbox_->forget_before(prediction.frame);
}

}  // namespace millrace::gst
