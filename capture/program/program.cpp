#include "capture/program/program.h"

#include <ATen/core/LegacyTypeDispatch.h>  // below autograd

#include <algorithm>  // lifetimes
#include <chrono>     // times
#include <map>        // memory
#include <mutex>      // names
#include <set>        // names
#include <string>

#include "capture/operation_watch.h"
#include "capture/program/node.h"
#include "capture/program/operations.h"

namespace millrace::program {

struct Program::Parts {
  std::vector<Node> nodes;  ///< hold the memory
  std::vector<std::unique_ptr<Operation>> operations;
  std::vector<const char*> names;  ///< of them, for a watch
};

namespace {

/// Values of the recording's own, and when they live.
struct Values {
  std::vector<at::Tensor> tensors;  ///< one a storage
  std::vector<Lifetime> lifetimes;
};

Values values_of(const std::vector<Node>& nodes, const OwnMemory& own) {
  Values values;
  std::map<const c10::StorageImpl*, std::size_t> places;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const auto* tensors : {&nodes[i].reads, &nodes[i].writes}) {
      for (const at::Tensor& tensor : *tensors) {
        if (!tensor.defined() || !own.holds(tensor)) continue;
        const auto [found, added] =
            places.emplace(tensor.storage().unsafeGetStorageImpl(), values.tensors.size());
        if (added) {
          values.tensors.push_back(tensor);
          values.lifetimes.push_back({i, i, tensor.storage().nbytes()});
        }
        values.lifetimes[found->second].last = i;
      }
    }
  }
  return values;
}

/// One copy of each name, kept: who is told of it may look at it when the program is gone.
const char* kept_name(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

}  // namespace

Program::Program(const std::function<void()>& body, Arena& arena)
    : parts_(std::make_unique<Parts>()) {
  std::vector<Call> calls = record_calls(body);
  OwnMemory own(calls);
  std::vector<Node>& nodes = parts_->nodes;
  nodes = lower(calls, own);
  fuse(nodes, own);

  Values values = values_of(nodes, own);
  const std::size_t own_values = values.tensors.size();
  std::vector<std::unique_ptr<Prepared>> prepared;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    prepared.push_back(prepare(nodes[i]));
    values.lifetimes.push_back({i, i, prepared.back()->scratch_bytes()});
  }
  const ArenaPlan plan = plan_arena(values.lifetimes);
  char* block = arena.block(plan.bytes);
  for (std::size_t i = 0; i < own_values; ++i) {
    values.tensors[i].storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::DataPtr(block + plan.offsets[i], c10::kCPU));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    prepared[i]->bind(nodes[i], block + plan.offsets[own_values + i]);
    parts_->operations.push_back(std::move(prepared[i]));
    parts_->names.push_back(kept_name(parts_->operations.back()->info.name));
  }
  for (Node& node : nodes) node.call = nullptr;  // the calls end here
}

Program::~Program() = default;

void Program::run() {
  const at::AutoDispatchBelowADInplaceOrView plain;
  if (capture::OperationWatch* const watch = capture::operation_watch) {
    using Clock = std::chrono::steady_clock;
    for (std::size_t i = 0; i < parts_->operations.size(); ++i) {
      const auto begin = Clock::now();
      parts_->operations[i]->run();
      watch->ran(parts_->names[i], begin, Clock::now());
    }
    return;
  }
  for (const auto& operation : parts_->operations) operation->run();
}

void Program::run_timed() {
  using Clock = std::chrono::steady_clock;
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (const auto& operation : parts_->operations) {
    const auto begin = Clock::now();
    operation->run();
    const std::int64_t ns = std::chrono::nanoseconds(Clock::now() - begin).count();
    std::int64_t& best = operation->info.best_ns;
    best = best == 0 ? ns : std::min(best, ns);
  }
}

std::vector<capture::OperationInfo> Program::operations() const {
  std::vector<capture::OperationInfo> all;
  for (const auto& operation : parts_->operations) all.push_back(operation->info);
  return all;
}

}  // namespace millrace::program
