#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/monitor/histogram.h"
#include "engine/pipeline/rank_options.h"
#include "engine/pipeline/shared.h"

namespace millrace::engine {

/// Counts of a rank with the last stage in this run, for rank 0's observer.
struct LossCounts {
  FateCounts fates;
  LossGuard::Status guard;
};

/// Ports for every kind of message that this rank exchanges in one run of a schedule; the workers'
/// ranks decide which kinds. Allocates nothing after construction. Called under Exchange::mutex(),
/// except the constructor, the destructor and queries of where workers are.
class RankPorts {
 public:
  /// Precedes each message.
  struct Head {
    std::int64_t number = 0;  ///< 0, 1, ... on its route
    int from = 0, to = 0;     ///< replicas
    Token token;
    Clock::time_point sent;
    SampleInfo info;    ///< activation, target, sample
    float loss = 0;     ///< prediction
    LossCounts counts;  ///< prediction
  };
  struct Buffer {
    Head head{};
    Payload payload{};
    int port = -1;
  };
  /// Messages of one kind to or from one rank, in order.
  struct Route {
    Cargo cargo;
    int stage, peer;
    bool sends;
    std::int64_t bytes = 0;          ///< per message
    std::vector<Buffer> buffers{};   ///< [slot] if about a sample, otherwise used in turn
    std::int64_t messages = 0;       ///< sent, or handled
    std::vector<Buffer*> waiting{};  ///< receiving: arrived out of order, by number mod buffers
    int last = -1;                   ///< sending: the port last started
    Histogram took{};                ///< receiving: ns in transit
  };

  /// `shared`, of a pipeline over ranks, must outlive this.
  explicit RankPorts(Shared& shared);
  ~RankPorts();

  int rank() const { return exchange_.rank(); }
  int rank_of(int replica_id) const;
  bool here(int replica_id) const { return rank_of(replica_id) == rank(); }
  bool has_last(int rank) const;  ///< a replica of the last stage
  /// Whether a rank gets its samples' inputs in separate messages, not with the targets.
  bool takes_samples(int rank) const { return takes_samples_[std::size_t(rank)]; }

  const std::vector<std::unique_ptr<Route>>& routes() const { return routes_; }
  Route& to(Cargo cargo, int stage, int peer) { return *find(cargo, stage, peer, true); }
  /// Whether put() may write the next message, about `sample`.
  bool is_free(Route& route, std::int64_t sample) {
    return exchange_.over(buffer_for(route, sample).port);
  }
  void put(Route& route, const Head& head);
  /// Calls `handle(route, buffer)` for each message that has arrived, in the order of its route. It
  /// must call unpack() before it signals anyone.
  template <class Handle>
  void receive(const Handle& handle) {
    for (int port; (port = exchange_.arrived()) >= 0;) {
      const auto [route, buffer] = of_port_[std::size_t(port)];
      const auto waiting = [route](std::int64_t number) -> Buffer*& {
        return route->waiting[std::size_t(number) % route->waiting.size()];
      };
      waiting(buffer->head.number) = buffer;
      while (Buffer* const next = std::exchange(waiting(route->messages), nullptr)) {
        ++route->messages;
        handle(*route, *next);
        exchange_.start(next->port);
      }
    }
  }
  void unpack(const Route& route, Buffer& buffer);

  bool is_sending() const;  ///< some route's last message is still in flight
  bool all_sent() const;
  /// Latencies of messages to this rank so far.
  std::vector<LinkTime> times() const;

 private:
  Route* find(Cargo cargo, int stage, int peer, bool sends) const;  ///< null: there is none
  Buffer& buffer_for(Route& route, std::int64_t sample);
  void open_all();
  void open(Cargo cargo, int stage, int peer, bool sends);
  Exchange::Parts fill(Buffer& buffer, const Route& route, int slot);

  const RankOptions& options_;
  Exchange& exchange_;
  Freight& freight_;
  Shared& shared_;
  std::vector<char> takes_samples_;  ///< [rank]
  std::vector<std::unique_ptr<Route>> routes_;
  std::vector<std::pair<Route*, Buffer*>> of_port_;
};

}  // namespace millrace::engine
