#include "capture/program/program.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>  // below autograd
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "capture/program/operation.h"
#include "capture/ranges.h"

namespace millrace::program {

struct Program::Step {
  Prepared* operation;
  int phase;
  bool shared;  ///< by the team; otherwise the first thread runs it
};

namespace {

using Clock = std::chrono::steady_clock;

/// While the result lives, this thread flushes denormals to zero: they slow some processors down a
/// hundredfold, and vanishing gradients and running means reach them sooner or later.
[[nodiscard]] auto denormals_are_zeros() {
  std::fenv_t before;
  std::fegetenv(&before);
  at::globalContext().setFlushDenormal(true);
  return c10::make_scope_exit([before] { std::fesetenv(&before); });
}

void move(c10::StorageImpl& storage, char* to, c10::Device device) {
  storage.set_data_ptr_noswap(c10::DataPtr(to, device));
}

/// A program's own values and their lifetimes, in the order of their first calls.
struct OwnValues {
  std::vector<const Value*> values;
  std::vector<capture::Lifetime> lifetimes;
};
OwnValues own_values_of(const Values& values) {
  OwnValues own;
  for (const Value& value : values.all()) {
    if (!value.own || value.uses.empty()) continue;
    own.values.push_back(&value);
    own.lifetimes.push_back(
        {value.uses.front().node, value.uses.back().node, value.storage.nbytes()});
  }
  return own;
}

double bytes_of(const Node& node) {
  std::map<const void*, std::size_t> memory;
  for (const auto* tensors : {&node.reads, &node.writes}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.defined()) memory[tensor.const_data_ptr()] = tensor.nbytes();
    }
  }
  double bytes = 0;
  for (const auto& [address, count] : memory) bytes += double(count);
  return bytes;
}

/// Moves what is kept to its arena, one after the other, and what is united to its copy's memory.
void move_kept(const Values& values) {
  std::map<Arena*, std::vector<c10::StorageImpl*>> moving;
  for (const Value& value : values.all()) {
    c10::StorageImpl* const storage = value.storage.unsafeGetStorageImpl();
    if (value.kept_in) moving[value.kept_in].push_back(storage);
    if (value.united)
      move(*storage, static_cast<char*>(value.copy.data_ptr()), value.copy.device());
  }
  for (const auto& [arena, storages] : moving) {
    std::vector<capture::Lifetime> alive;  // all at once
    for (const c10::StorageImpl* storage : storages) alive.push_back({0, 0, storage->nbytes()});
    const capture::ArenaPlan plan = capture::plan_arena(alive);
    char* const block = arena->block(plan.bytes);
    for (std::size_t i = 0; i < storages.size(); ++i)
      move(*storages[i], block + plan.offsets[i], arena->device());
  }
}

/// For the device of the node's tensors.
std::unique_ptr<Prepared> prepare(const Node& node, int threads) {
  const auto on_gpu = [](const at::Tensor& t) { return t.defined() && t.is_cuda(); };
  auto made = std::ranges::any_of(node.reads, on_gpu) || std::ranges::any_of(node.writes, on_gpu)
                  ? node.operation.on_gpu(node)
                  : node.operation.on_cores(node, threads);
  if (made->info.name.empty()) made->info.name = node.operation.name;
  return made;
}

/// Interned: a watch may read a name after its program is destroyed.
const char* kept_name(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

}  // namespace

Program::Program(const std::function<void()>& body, Arena& arena, const ProgramOptions& options)
    : team_(options.team), late_(options.late) {
  capture::KeptIn::take_exceptions();
  std::vector<Call> calls = record_calls(body);
  Values values(calls, capture::KeptIn::take_exceptions());
  const bool on_gpu = arena.device().is_cuda();
  nodes_ = translate(calls, values, on_gpu);
  fuse(nodes_, values);
  arrange(nodes_, values, on_gpu, options);

  OwnValues own = own_values_of(values);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    operations_.push_back(prepare(nodes_[i], options.team ? options.team->threads() : 1));
    own.lifetimes.push_back({i, i, operations_.back()->scratch_bytes()});
  }
  const capture::ArenaPlan plan = capture::plan_arena(own.lifetimes);
  char* block = arena.block(plan.bytes);
  move_kept(values);
  for (std::size_t i = 0; i < own.values.size(); ++i)
    move(*own.values[i]->storage.unsafeGetStorageImpl(), block + plan.offsets[i], arena.device());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Prepared& operation = *operations_[i];
    operation.bind(nodes_[i], block + plan.offsets[own.values.size() + i]);
    operation.info.bytes = bytes_of(nodes_[i]);
    names_.push_back(kept_name(operation.info.name));
    first_steps_.push_back(steps_.size());
    const std::vector<bool> phases = operation.phases();
    for (std::size_t phase = 0; phase < phases.size(); ++phase)
      steps_.push_back({&operation, int(phase), phases[phase]});
  }
  first_steps_.push_back(steps_.size());
  if (!nodes_.empty() && nodes_[0].operation.update &&
      !values.used(nodes_[0].reads[1], 1, nodes_.size()))
    first_update_ = operations_[0].get();
  for (Node& node : nodes_) node.operation = {};  // some hold calls with all their tensors
}

Program::~Program() = default;

void Program::run() {
  const std::size_t count = operations_.size();
  capture::OperationWatch* const watch = capture::operation_watch;
  bool taken = false;
  if (late_) {
    late_->none = watch;
    taken = first_update_ && first_update_->take(late_->waiting);
    if (!taken) late_->make(team_);
  }
  if (!watch) run(0, count);
  for (std::size_t i = 0; watch && i < count; ++i) {
    const auto begin = Clock::now();
    run(i, i + 1);
    watch->ran(names_[i], begin, Clock::now());
  }
  if (taken) late_->waiting.clear();
}

void LateGradients::make(kernels::Team* team) {
  const auto work = [&](kernels::Share share) {
    const auto here = denormals_are_zeros();
    for (const LateGradient* gradient : waiting) {
      gradient->make(nullptr, share, gradient->scratch(share.index).data());
      if (team) team->meet();  // the next one may have the same scratch
    }
  };
  if (waiting.empty()) return;
  team ? team->run(work) : work({});
  waiting.clear();
}

void Program::run_timed() {
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const auto begin = Clock::now();
    run(i, i + 1);
    const std::int64_t ns = std::chrono::nanoseconds(Clock::now() - begin).count();
    std::int64_t& best = operations_[i]->info.best_ns;
    best = best == 0 ? ns : std::min(best, ns);
  }
}

void Program::run(std::size_t begin, std::size_t end) {
  const std::span steps(steps_.begin() + first_steps_[begin], steps_.begin() + first_steps_[end]);
  const at::AutoDispatchBelowADInplaceOrView plain;
  if (team_) return run_by_team(steps);
  const auto here = denormals_are_zeros();
  for (const Step& step : steps) step.operation->run(step.phase, {});
}

void Program::run_by_team(std::span<const Step> steps) {
  std::exception_ptr failure;
  team_->run([&](kernels::Share share) {
    const auto here = denormals_are_zeros();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto [operation, phase, shared] = steps[i];
      if (shared) {
        operation->run(phase, share);  // a kernel, doesn't throw
      } else if (share.index == 0 && !failure) {
        try {
          operation->run(phase, {});
        } catch (...) {
          failure = std::current_exception();  // the other threads are waiting
        }
      }
      // Steps of the first thread alone need no barrier between them; the end of the run is one.
      if (i + 1 < steps.size() && (shared || steps[i + 1].shared)) team_->meet();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

std::vector<capture::OperationInfo> Program::operations() const {
  std::vector<capture::OperationInfo> all;
  for (const auto& operation : operations_) all.push_back(operation->info);
  return all;
}

}  // namespace millrace::program
