#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "stages/safetensors.h"
#include "stages/stage.h"
#include "stages/torchscript.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/config/config.h"
#include "tools/app/feeds/frame_feed.h"

namespace millrace::app {

/// A trained network whose outputs are targets. Used by one thread at a time.
class Teacher {
 public:
  /// Loads task.teacher: a PyTorch network (.pt), or weights for the config's own network
  /// (.safetensors). Throws ConfigError if that fails or it doesn't map `sample` to `target`.
  Teacher(const Config& config, const stages::ImageShape& sample, const stages::ImageShape& target)
      : file_(config.task.teacher), sample_(sample) {
    const bool weights = file_.ends_with(".safetensors");
    stages::ModelSpec model = model_of(config);
    if (!weights) model = {.preset = "file", .file = file_};
    try {
      const auto network = stages::build_network(model, sample, stages::Gives::anything);
      const stages::ImageShape& made = network->output();
      if (made != target)
        throw std::invalid_argument("gives " + text(made) + ", the network " + text(target));
      stages::StageOptions options;
      options.recompute = true;  // stores no autograd graph
      network_ = std::make_unique<stages::Stage>(network, stages::StageRange{0, network->size()},
                                                 stages::OptimizerSpec{},
                                                 at::TensorOptions(at::kCPU), options);
      network_->restore(weights ? read_checked(file_) : stages::initial_state(*network, 0));
      // A first call on one thread: concurrent first calls of MKL give different last bits.
      network_->forward({at::zeros(sample.sizes())});
    } catch (const std::exception& error) {
      throw config.error("task.teacher", file_ + ": " + error.what());
    }
  }
  /// Writes the output for `input`, [C,H,W], to `target`. Throws std::runtime_error.
  void tell(const float* input, float* target) const {
    const at::Tensor sample = at::from_blob(const_cast<float*>(input), sample_.sizes());
    try {
      const at::Tensor made = network_->forward({sample}).outputs[0].contiguous();
      std::copy_n(made.const_data_ptr<float>(), made.numel(), target);
    } catch (const std::exception& error) {
      throw std::runtime_error("task.teacher: " + file_ + ": " + stages::last_line(error.what()));
    }
  }

 private:
  static std::string text(const stages::ImageShape& shape) {
    return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
           std::to_string(shape.width);
  }

  std::string file_;
  stages::ImageShape sample_;
  std::unique_ptr<stages::Stage> network_;
};

/// With late targets, a thread runs the teacher while the stages run forward. Otherwise stage 0's
/// worker runs it first.
class TeacherFeed final : public FrameFeed {
 public:
  /// `slots`: samples in flight.
  TeacherFeed(io::FrameQueue& queue, io::Resizer& resizer, Teacher teacher, bool late, int slots)
      : FrameFeed(queue, resizer, TargetFrom::teacher),
        teacher_(std::move(teacher)),
        unknown_(std::size_t(slots)) {
    if (late) thread_ = std::thread([this] { work(); });
  }
  ~TeacherFeed() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void take(engine::Sample& sample) override {
    while (target(sample, std::chrono::milliseconds(10)) == Status::wait) {
    }  // of the slot's previous sample
    FrameFeed::take(sample);
    if (!thread_.joinable()) return tell(sample);
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(&sample);
      unknown_[std::size_t(sample.slot)] = true;
    }
    changed_.notify_all();
  }
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override {
    return wait(patience, [&] { return !unknown_[std::size_t(sample.slot)]; });
  }
  bool computes_targets() const override { return true; }
  Status targets_known(std::chrono::microseconds patience) override {
    return wait(patience, [&] { return asked_.empty(); });
  }

 private:
  void tell(engine::Sample& sample) const {
    teacher_.tell(sample.input().data(), sample.target().data());
  }
  void work() {
    at::init_num_threads();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !asked_.empty(); });
      if (over_ || failed_) return;
      engine::Sample& sample = *asked_.front();
      lock.unlock();
      std::exception_ptr failed;
      try {
        tell(sample);
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      failed_ = failed;
      asked_.pop_front();
      unknown_[std::size_t(sample.slot)] = false;
      changed_.notify_all();
    }
  }
  template <class Known>
  Status wait(std::chrono::microseconds patience, Known known) {
    std::unique_lock lock(mutex_);
    const bool is_known = changed_.wait_for(lock, patience, [&] { return failed_ || known(); });
    if (failed_) std::rethrow_exception(failed_);
    return is_known ? Status::ready : Status::wait;
  }

  const Teacher teacher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<engine::Sample*> asked_;  ///< under the lock; the teacher works on the front
  std::vector<bool> unknown_;          ///< [slot], under the lock
  bool over_ = false;                  ///< under the lock
  std::exception_ptr failed_;          ///< under the lock: the teacher's exception
  std::thread thread_;                 ///< last; only with late targets
};

}  // namespace millrace::app
