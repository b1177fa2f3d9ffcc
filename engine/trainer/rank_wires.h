#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capture/buffers.h"
#include "engine/monitor/clock.h"
#include "engine/pipeline/bytes.h"
#include "engine/pipeline/exchange.h"
#include "engine/pipeline/rank_options.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Calls `step` under the exchange's mutex until it is true. Throws RankLost after 30 s.
template <class Step>
void await_ranks(Exchange& exchange, const Step& step) {
  using namespace std::chrono_literals;
  for (const auto began = Clock::now(); Clock::now() - began < 30s;) {
    {
      const std::lock_guard lock(exchange.mutex());
      if (step()) return;
    }
    std::this_thread::sleep_for(200us);
  }
  throw RankLost("lost a rank: no message for 30 s");
}

/// The rank that runs the replica. `options`: of a trainer that is spread over ranks.
inline int rank_of(const TrainerOptions& options, const Schedule& schedule, int replica_id) {
  const int worker = workers_of_replicas(schedule)[std::size_t(replica_id)];
  return options.rank_of_worker[std::size_t(worker)];
}

/// Lays wires over the cuts between recorded steps on GPUs of two ranks. Thread-bound.
class RankWires {
 public:
  /// `options`, `schedule`: the trainer's; must outlive it. `devices`: of all ranks, by replica_id.
  RankWires(const TrainerOptions& options, const Schedule& schedule,
            const std::vector<Device>& devices)
      : options_(options), schedule_(schedule), devices_(devices) {}

  /// Whether the cut after `stage` gets wires, with one end here.
  bool over_cut(int stage) const {
    if (options_.capture == Capture::eager || !options_.replicas.empty()) return false;
    const int up = rank_of(stage), down = rank_of(stage + 1), here = options_.exchange->rank();
    if (up == down || (up != here && down != here)) return false;
    const capture::GpuId *from = gpu_of(stage), *to = gpu_of(stage + 1);
    return from && to && *from != *to;  // NCCL does not connect a GPU with itself
  }
  bool any() const {
    for (int stage = 0; stage + 1 < schedule_.stages; ++stage) {
      if (over_cut(stage)) return true;
    }
    return false;
  }
  /// Adds tensors and wires of this rank's side. Call forget() before destroying the boundaries.
  void lay(int stage, capture::Boundary& boundary) {
    const bool up = rank_of(stage) == options_.exchange->rank();
    const int mine = up ? stage : stage + 1, peer = rank_of(up ? stage + 1 : stage);
    lay(mine, up, 2 * stage, peer, boundary.activations);
    lay(mine, !up, 2 * stage + 1, peer, boundary.gradients);
  }
  void forget() { ends_.clear(); }

  // Collective calls. connect() waits for the other ends, unless it is done already.
  void connect() {
    // Ends have equal order on all ranks, so both ends of the first unconnected wire wait.
    for (End& end : ends_) {
      if (end.connected) continue;
      const std::string name = end.sends ? capture::new_wire_name() : receive(end);
      if (end.sends) post(end, name);
      end.buffers->wire->connect(name);
      end.connected = true;
    }
  }
  /// Receives messages that the other end sent and nobody took, so that both moved equally often.
  void drain() {
    for (const End& end : ends_) {
      if (end.sends) post(end, ByteWriter().put(end.buffers->wire->moves()).bytes());
    }
    for (const End& end : ends_) {
      if (end.sends) continue;
      const std::string text = receive(end);
      const auto sent = ByteReader(text).get<std::int64_t>();
      while (end.buffers->wire->moves() < sent) end.buffers->wire->move(0);
    }
  }

 private:
  /// This rank's end of a wire, which goes one direction.
  struct End {
    int number;  ///< of the wire: equal at both ends
    int peer;
    bool sends;
    bool connected;
    capture::BoundaryBuffers* buffers;
  };
  int rank_of(int stage) const {
    return engine::rank_of(options_, schedule_, schedule_.replica_id(stage, 0));
  }
  /// Null: no GPU that wires reach.
  const capture::GpuId* gpu_of(int stage) const {
    const Device& device = devices_[std::size_t(schedule_.replica_id(stage, 0))];
    const std::size_t rank = std::size_t(rank_of(stage));
    if (!device.cuda || rank >= options_.gpus.size()) return nullptr;
    const std::vector<capture::GpuId>& there = options_.gpus[rank];
    return std::size_t(device.index) < there.size() ? &there[std::size_t(device.index)] : nullptr;
  }
  void lay(int stage, bool sends, int number, int peer, capture::BoundaryBuffers& buffers) {
    const Device& device = devices_[std::size_t(schedule_.replica_id(stage, 0))];
    const c10::Device place(c10::kCUDA, c10::DeviceIndex(device.index));
    const stages::Network& network = *options_.network;
    for (auto& tensors : buffers.tensors) {
      for (const int source : network.crossing(options_.cut[std::size_t(number / 2)]))
        tensors.push_back(at::zeros(network.shape(source).sizes(), at::TensorOptions(place)));
    }
    buffers.wire = capture::make_wire(place, buffers, sends);
    ends_.push_back({.number = number, .peer = peer, .sends = sends, .buffers = &buffers});
  }
  void post(const End& end, const std::string& text) {
    Exchange& exchange = *options_.exchange;
    const std::lock_guard lock(exchange.mutex());
    exchange.post(end.peer, Exchange::About::wires, ByteWriter().put(end.number).raw(text).bytes());
  }
  std::string receive(const End& end) {
    Exchange& exchange = *options_.exchange;
    await_ranks(exchange, [&] {
      while (const auto letter = exchange.letter(Exchange::About::wires)) {
        ByteReader bytes(letter->text);
        const int number = bytes.get<int>();
        early_.emplace(number, bytes.rest());
      }
      return early_.contains(end.number);
    });
    return early_.extract(end.number).mapped();
  }

  const TrainerOptions& options_;
  const Schedule& schedule_;
  const std::vector<Device>& devices_;
  std::vector<End> ends_;
  std::map<int, std::string> early_;  ///< [number]: messages about other wires
};

}  // namespace millrace::engine
