// What a rank's workers share with those of other ranks, for one run of a schedule.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/monitor/histogram.h"
#include "engine/pipeline/exchange.h"
#include "engine/pipeline/pipeline.h"
#include "engine/pipeline/rank_clocks.h"

namespace millrace::engine {

struct LossCounts;

/// A rank is gone: what it had is lost, and the others can't go on.
struct RankLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Brings tensors into messages and out of them. Called under Exchange::mutex(); what it touches is
/// the caller's by then, as the schedule's tokens have it.
class Freight {
 public:
  virtual ~Freight() = default;
  /// Room that a message of that kind needs. `stage`: that gives it; the feed's and observer's: 0.
  virtual std::size_t bytes(Cargo cargo, int stage) const = 0;
  /// Whether a sample's target brings its input, too.
  virtual bool target_is_input() const = 0;
  /// Blocks until what was last given of the sample in `slot` lies in host memory.
  virtual void await(Cargo cargo, int stage, int slot) = 0;
  /// Of the sample in `slot`.
  virtual void pack(Cargo cargo, int stage, int slot, std::byte* to) = 0;
  virtual void unpack(Cargo cargo, int stage, int slot, const std::byte* from) = 0;
  /// Cargo::meeting: what replica `from` here has for its next update, and where the next update of
  /// `to` here finds it. By replica_id; the former by its worker.
  virtual void pack_gradient(int from, std::byte* to) = 0;
  virtual void unpack_gradient(int from, int to, const std::byte* bytes) = 0;

  /// The gradient that the next update of a stage here applies, and room behind it for as many
  /// numbers more. Not under the mutex: by the stage's worker, as the next.
  virtual std::vector<float>& gradient(int stage, std::size_t more) = 0;
  /// Has the stage apply 1 / `copies` of what gradient() has become.
  virtual void set_gradient(int stage, int copies) = 0;

  /// The run has failed somewhere: what is under way between devices is not waited for any longer.
  virtual void abandon() {}
};

/// How a schedule is spread over processes.
struct RankOptions {
  Exchange* exchange = nullptr;
  Freight* freight = nullptr;
  std::vector<int> rank_of_worker;
  int run = 0;  ///< 0, 1, ...: the same on every rank, another for each run
  /// What a rank tells rank 0 beside its meters twice a second, and what takes it there. Any
  /// thread, under Exchange::mutex().
  std::function<std::string()> facts;
  std::function<void(std::string_view)> take_facts;
};

/// The rank of each of `workers`: dealt in order, as evenly as can be.
std::vector<int> deal_workers(int workers, int ranks);

/// Throws std::invalid_argument unless every rank has a worker of `schedule` and the first stage
/// (of its replicas the first) is rank 0's.
void require_ranks(const Schedule& schedule, const std::vector<int>& rank_of_worker, int ranks);

/// Sends what the workers here give to workers elsewhere, and hands to the workers here what comes.
/// Whoever waits makes progress for all; a thread of its own only lets the others hear twice a
/// second that this rank is alive. Thread-safe.
class RankLinks {
 public:
  /// `shared`: of the pipeline here; outlives it.
  RankLinks(const RankOptions& options, Shared& shared, const PipelineOptions& pipeline);
  ~RankLinks();

  int rank() const { return exchange_.rank(); }
  bool has_feed() const { return rank() == 0; }
  /// Whether predictions made here are shown by send_prediction(): elsewhere, or here in one order
  /// with those of other ranks.
  bool shows() const { return rank() != 0 || spread_; }

  /// Takes what has come. Any thread; at once if another is at it.
  void progress();
  /// Whether something sent here still needs progress(). Any thread.
  bool sends() const;

  // By workers.
  /// False if the run was stopped meanwhile.
  bool send(Cargo cargo, int from, int to, const Token& token);
  /// `sample` was taken: its target goes to the ranks that take a loss of it.
  void send_target(std::int64_t sample);
  /// It goes to the replica of the first stage that works on it, which is elsewhere.
  void send_sample(std::int64_t sample);
  /// Whether the target of `sample`, or its input, lies in its slot.
  bool has_target(std::int64_t sample) const;
  bool has_sample(std::int64_t sample) const;
  void send_prediction(std::int64_t sample, float loss);
  void release(std::int64_t sample);
  /// The stream held `samples`.
  void end_of_stream(std::int64_t samples);
  /// Before an update: where copies of the pipeline learn one network, its gradient is their mean,
  /// and none is applied unless all learned; the gravest alarm is everybody's. Where ranks share
  /// modules, all leave out a gradient that is not finite on one.
  void agree(int stage, bool& learned, Alarm& alarm);

  /// A worker here failed: nobody anywhere waits any longer. `lost`: for lack of a rank, so that
  /// there is nothing whole to save.
  void fail(const std::string& what, bool lost);
  /// When the workers here have ended: blocks until those of all ranks have, and all is shown.
  /// Returns what became of samples, as the last stage's ranks counted it. Throws
  /// std::runtime_error, "rank N: ...", if another rank failed; RankLost if nothing was heard of
  /// one for 5 s.
  FateCounts finish();

 private:
  struct Head;   ///< of each message
  struct Final;  ///< of each rank
  /// Messages one after another in a ring of buffers.
  struct Way {
    Cargo cargo;
    int stage, peer;
    std::vector<std::vector<std::byte>> buffers;
    std::vector<int> ports;
    std::vector<char> filled;  ///< receiving: not handled yet
    std::size_t next = 0;      ///< in the ring
    int last = -1;             ///< sending: the port last started
    Histogram took;            ///< receiving
  };
  class OutgoingLink;

  void open(Cargo cargo, int stage, int peer, bool sends);
  std::size_t room(Cargo cargo, int stage) const;
  void open_ways();
  void divert_links();
  bool here(int replica_id) const { return rank_of(replica_id) == rank(); }
  int rank_of(int replica_id) const;
  bool has_last(int rank) const;  ///< a replica of the last stage
  bool takes_loss(int stage) const;
  bool takes_targets(int rank) const;
  void meet_copies(int stage, bool& learned, Alarm& alarm);
  Way& outgoing(Cargo cargo, int stage, int peer);
  // Under the mutex.
  bool put(Way& way, std::unique_lock<std::mutex>& lock, const Head& head);
  void poll();
  template <class Done>
  void poll_until(std::unique_lock<std::mutex>& lock, const Done& done);
  void load(Way& way, const Head& head, std::byte* to);
  void handle(Way& way, const std::byte* bytes);
  /// When a message of a peer was sent, by the clock here.
  Clock::time_point time_of_sending(Way& way, Clock::time_point by_its_clock);
  void know(std::int64_t sample, const SampleInfo& info);
  void show(const Head& head);      ///< on rank 0, when those before it are shown
  FateCounts counted_here() const;  ///< in this run
  void count(int rank, const LossCounts& counts);
  bool all_have_come() const;                 ///< predictions to rank 0
  bool read(const Exchange::Letter& letter);  ///< false: it is of a later run
  void tell_all(const std::string& letter);
  void beat();  ///< the thread
  void look_for_losses();
  void give_up(bool lost);  ///< nobody here waits any longer
  void send_beat(int rank);
  void tell_times();
  std::string meters() const;
  void take_meters(std::string_view bytes);

  Exchange& exchange_;
  Freight& freight_;
  const RankOptions& options_;
  const PipelineOptions& pipeline_;
  Shared& shared_;
  std::vector<std::unique_ptr<Link>> links_;  ///< to workers elsewhere
  std::vector<std::unique_ptr<Way>> ways_;
  std::vector<std::vector<Way*>> outgoing_;  ///< by cargo and stage
  std::vector<std::pair<Way*, std::size_t>> of_port_;
  /// By rank: when anything was heard of it; never: it has not begun, or has ended.
  std::vector<Clock::time_point> heard_;
  RankClocks clocks_;
  std::unique_ptr<std::atomic<std::int64_t>[]> targets_, samples_;  ///< by slot: whose lies there
  std::vector<char> takes_samples_;  ///< by rank: by messages of their own, not with targets
  bool spread_ = false;              ///< the last stage, over several ranks
  std::int64_t predictions_ = 0;     ///< sent, or come
  std::vector<Head> to_show_;        ///< by slot
  std::int64_t shown_ = 0;           ///< samples
  FateCounts before_;                ///< counted here by earlier runs
  std::vector<FateCounts> counted_;  ///< by rank, as far as is known here
  int finished_ = 0;                 ///< ranks
  bool failed_ = false;              ///< a worker here
  bool lost_ = false;
  bool ended_ = false;                          ///< this one
  std::vector<std::unique_ptr<Final>> finals_;  ///< by rank, of those with the last stage
  std::string failure_;
  std::condition_variable_any closing_;
  bool closed_ = false;
  std::thread alive_;
};

}  // namespace millrace::engine
