#include "tests/capture/double_stream.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>  // below autograd
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "capture/program/node.h"

namespace millrace::capture {
namespace {

using Clock = std::chrono::steady_clock;
using program::Call, program::each_tensor;

std::atomic<bool> refuses{false};

class DoubleEvent final : public Event {
 public:
  /// By whoever launches the work that will signal it.
  std::int64_t launch() { return ++launched_; }
  std::int64_t launched() const { return launched_; }
  void signal(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    done_ = number;
    changed_.notify_all();
  }
  void wait(std::int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number; });
    if (done_ > number) throw std::logic_error("an event was signalled again before its reader");
  }

 private:
  std::atomic<std::int64_t> launched_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t done_ = 0;
};

/// Leaves `made` where the recorded call left its result.
void keep(const at::Tensor& recorded, const at::Tensor& made) {
  if (recorded.const_data_ptr() == made.const_data_ptr()) return;
  if (recorded.sizes() != made.sizes() || recorded.strides() != made.strides())
    throw std::logic_error("a result has another layout than when it was recorded");
  at::Tensor(recorded).copy_(made);
}

void spoil(const std::vector<at::Tensor>& all) {
  for (const at::Tensor& tensor : all) {
    if (tensor.is_floating_point())
      at::Tensor(tensor).fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

/// Does on a core what a CUDA Graph does: repeats recorded operators on the tensors they were
/// recorded with, whatever the host would do by now. As there, what a body reads with item() can't
/// be recorded; memory that nobody holds once the body is done belongs to whoever is recorded next
/// (here it is spoiled at the end of each replay, and all that recording made is spoiled once); and
/// what the body does past LibTorch's operators is not repeated.
class DoubleRecording final : public Recording {
 public:
  /// Runs `body` to note what it does. Throws std::runtime_error for what can't be recorded.
  explicit DoubleRecording(const std::function<void()>& body)
      : calls_(program::record_calls(body)) {
    const at::AutoDispatchBelowADInplaceOrView plain;
    std::vector<at::Tensor> made;  // whose memory no call had seen before
    std::set<const c10::StorageImpl*> seen;
    for (const Call& call : calls_) {
      each_tensor(call.arguments,
                  [&](const auto& t) { seen.insert(t.storage().unsafeGetStorageImpl()); });
      each_tensor(call.results, [&](const auto& t) {
        if (seen.insert(t.storage().unsafeGetStorageImpl()).second) made.push_back(t);
      });
    }
    const program::OwnMemory own(calls_);
    std::copy_if(made.begin(), made.end(), std::back_inserter(temporary_),
                 [&](const at::Tensor& tensor) { return own.holds(tensor); });
    spoil(made);
  }

  void replay() const {
    const at::AutoDispatchBelowADInplaceOrView plain;
    for (const Call& call : calls_) {
      torch::jit::Stack stack = call.arguments;
      call.operation.callBoxed(stack);
      std::vector<at::Tensor> recorded;
      each_tensor(call.results, [&](const at::Tensor& t) { recorded.push_back(t); });
      auto next = recorded.begin();
      each_tensor(stack, [&](const at::Tensor& made) { keep(*next++, made); });
    }
    spoil(temporary_);
  }

 private:
  std::vector<Call> calls_;
  std::vector<at::Tensor> temporary_;  ///< made by the calls, and held by nobody else
};

/// The thread and what it has still to do.
class Worklist {
 public:
  Worklist() : thread_([this] { run(); }) {}
  ~Worklist() {
    add(nullptr);
    thread_.join();
  }
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty(); });
  }

 private:
  void run() {
    at::init_num_threads();
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !work_.empty(); });
        work = work_.front();
      }
      if (!work) return;
      work();
      const std::lock_guard lock(mutex_);
      work_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

class DoubleGraph final : public Graph {
 public:
  DoubleGraph(std::vector<GraphNode> parts, Worklist& work, bool disturbed)
      : parts_(std::move(parts)), work_(work), disturbed_(disturbed) {}

  void launch() override {
    ++launched_;
    std::vector<const GraphNode*> late;
    for (const GraphNode& node : parts_) {
      if (node.aside && random()() % 2 == 0) {
        late.push_back(&node);
      } else {
        add(node);
      }
    }
    for (const GraphNode* node : late) add(*node);
    work_.add([this] { ++over_; });
  }
  bool over() override { return over_ == launched_; }
  std::int64_t duration_ns() override { return passed_.exchange(0); }

 private:
  void add(const GraphNode& node) {
    auto* wait = static_cast<DoubleEvent*>(node.wait);
    auto* signal = static_cast<DoubleEvent*>(node.signal);
    const std::int64_t needs = wait ? wait->launched() : 0;
    const std::int64_t gives = signal ? signal->launch() : 0;
    work_.add([=, this] {
      if (wait) wait->wait(needs);
      pause();
      const auto begin = Clock::now();
      static_cast<const DoubleRecording*>(node.recording)->replay();
      passed_ += (Clock::now() - begin).count();
      if (signal) signal->signal(gives);
    });
  }
  void pause() {
    if (disturbed_ && random()() % 3 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random()() % 1500));
  }
  static std::mt19937& random() {
    thread_local std::mt19937 generator{std::random_device{}()};
    return generator;
  }

  std::vector<GraphNode> parts_;
  Worklist& work_;
  bool disturbed_;
  std::int64_t launched_ = 0;
  std::atomic<std::int64_t> over_{0}, passed_{0};
};

class DoubleStream final : public Backend {
 public:
  explicit DoubleStream(bool disturbed) : disturbed_(disturbed) {}
  std::unique_ptr<Event> make_event() override { return std::make_unique<DoubleEvent>(); }
  std::unique_ptr<Recording> record(int, std::function<void()> body) override {
    if (refuses) throw std::runtime_error("operation not permitted when stream is capturing");
    work_.drain();
    body();
    return std::make_unique<DoubleRecording>(body);
  }
  std::unique_ptr<Graph> assemble(const std::vector<GraphNode>& parts) override {
    return std::make_unique<DoubleGraph>(parts, work_, disturbed_);
  }
  void run(std::function<void()> body) override { work_.add(std::move(body)); }
  void copy(at::Tensor& to, const at::Tensor& from) override {
    const c10::NoGradGuard no_grad;
    to.copy_(from);
  }
  void synchronize() override { work_.drain(); }

 private:
  bool disturbed_;
  Worklist work_;
};

}  // namespace

std::unique_ptr<Backend> make_double_stream(bool disturbed) {
  return std::make_unique<DoubleStream>(disturbed);
}

void refuse_recording(bool refuse) {
  refuses = refuse;
}

}  // namespace millrace::capture
