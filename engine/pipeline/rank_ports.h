#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/monitor/histogram.h"
#include "engine/pipeline/pipeline.h"
#include "engine/pipeline/rank_options.h"

namespace millrace::engine {

/// Counts of a rank with the last stage in this run, for rank 0's observer.
struct LossCounts {
  FateCounts fates;
  LossGuard::Told guard;
};

/// Ports for every kind of message that this rank exchanges in one run of a schedule; the workers'
/// ranks decide which kinds. Allocates nothing after construction. Called under Exchange::mutex(),
/// except the constructor, the destructor and queries of where workers are.
class RankPorts {
 public:
  /// In front of each message.
  struct Head {
    std::int64_t number = 0;  ///< 0, 1, ... within its way
    int from = 0, to = 0;     ///< replicas
    Token token;
    Clock::time_point sent;
    SampleInfo info;    ///< activation, target, sample
    float loss = 0;     ///< prediction
    LossCounts counts;  ///< prediction
  };
  /// A message's buffers.
  struct Place {
    Head head{};
    Payload payload{};
    int port = -1;
  };
  /// Messages of one kind to or from one rank, in order.
  struct Way {
    Cargo cargo;
    int stage, peer;
    bool sends;
    std::int64_t bytes = 0;         ///< per message
    std::vector<Place> places{};    ///< by slot if about a sample, else in turn
    std::int64_t messages = 0;      ///< sent, or handled
    std::vector<Place*> waiting{};  ///< receiving: arrived out of order, by number mod places
    int last = -1;                  ///< sending: the port last started
    Histogram took{};               ///< receiving: ns in transit
  };

  /// All must outlive this.
  RankPorts(const RankOptions& options, Shared& shared, const PipelineOptions& pipeline);
  ~RankPorts();

  int rank() const { return exchange_.rank(); }
  int rank_of(int replica_id) const;
  bool here(int replica_id) const { return rank_of(replica_id) == rank(); }
  bool has_last(int rank) const;  ///< a replica of the last stage
  /// Whether a rank gets its samples' inputs in separate messages, not with the targets.
  bool takes_samples(int rank) const { return takes_samples_[std::size_t(rank)]; }

  Way& to(Cargo cargo, int stage, int peer);
  /// The ways on which the feed's targets leave.
  const std::vector<Way*>& to_targets() { return sending(Cargo::target, 0); }
  /// Whether put() may write the next message, about `sample`.
  bool is_free(Way& way, std::int64_t sample) {
    return exchange_.over(place_for(way, sample).port);
  }
  void put(Way& way, const Head& head);
  /// Calls `handle(way, place)` for each message that has arrived, in the order of its way. It must
  /// call unpack() before it signals anyone.
  template <class Handle>
  void receive(const Handle& handle) {
    for (int port; (port = exchange_.arrived()) >= 0;) {
      const auto [way, place] = of_port_[std::size_t(port)];
      const auto waiting = [way](std::int64_t number) -> Place*& {
        return way->waiting[std::size_t(number) % way->waiting.size()];
      };
      waiting(place->head.number) = place;
      while (Place* const next = std::exchange(waiting(way->messages), nullptr)) {
        ++way->messages;
        handle(*way, *next);
        exchange_.start(next->port);
      }
    }
  }
  void unpack(const Way& way, Place& place);

  bool is_sending() const;  ///< the last message of some way is still in flight
  bool all_sent() const;
  /// Latencies of messages to this rank so far.
  std::vector<LinkTime> times() const;

 private:
  std::vector<Way*>& sending(Cargo cargo, int stage) {
    return sending_[std::size_t(cargo) * std::size_t(shared_.schedule.stages) + std::size_t(stage)];
  }
  Place& place_for(Way& way, std::int64_t sample);
  bool takes_loss(int stage) const;
  void open_all();
  void open(Cargo cargo, int stage, int peer, bool sends);
  Exchange::Parts fill(Place& place, const Way& way, int slot);

  const RankOptions& options_;
  Exchange& exchange_;
  Freight& freight_;
  const PipelineOptions& pipeline_;
  Shared& shared_;
  std::vector<char> takes_samples_;  ///< by rank
  std::vector<std::unique_ptr<Way>> ways_;
  std::vector<std::vector<Way*>> sending_;  ///< by cargo and stage
  std::vector<std::pair<Way*, Place*>> of_port_;
};

}  // namespace millrace::engine
