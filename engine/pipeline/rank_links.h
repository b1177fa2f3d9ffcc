// What a rank's workers share with those of other ranks, for one run of a schedule.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pipeline/bytes.h"
#include "engine/pipeline/exchange.h"
#include "engine/pipeline/pipeline.h"
#include "engine/pipeline/rank_clocks.h"

namespace millrace::engine {

struct LossCounts;

/// A rank is gone: what it had is lost, and the others can't go on.
struct RankLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a message carries besides its head, of the sample in one slot. Used under
/// Exchange::mutex(); what it touches is the caller's by then, as the schedule's tokens have it.
class Payload {
 public:
  virtual ~Payload() = default;
  /// Where it lies for as long as this lives, of the same sizes on both sides. A receiver is ready
  /// for the slot's next message while a stage may still read the last one's: none is sent before
  /// the schedule has the slot free.
  virtual Exchange::Parts parts() = 0;
  virtual void pack() = 0;    ///< into the parts, before they are sent
  virtual void unpack() = 0;  ///< out of them, when they have come
};

/// Brings tensors into messages and out of them. Called under Exchange::mutex(); what it touches is
/// the caller's by then, as the schedule's tokens have it.
class Freight {
 public:
  virtual ~Freight() = default;
  /// Of a message of that kind: neither release, meeting nor turn. `stage`: that gives it; the
  /// feed's and observer's: 0. `sends`: from here. Outlived by what the freight outlives.
  virtual std::unique_ptr<Payload> payload(Cargo cargo, int stage, int slot, bool sends) = 0;
  /// Whether a sample's target brings its input, too.
  virtual bool target_is_input() const = 0;
  /// Blocks until what was last given of the sample in `slot` lies in host memory.
  virtual void await(Cargo cargo, int stage, int slot) = 0;
  /// Cargo::meeting: what replica `from` here has for its next update, and where the next update of
  /// `to` here finds it. By replica_id; the former by its worker.
  virtual std::size_t gradient_bytes(int stage) const = 0;
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
  struct Place;  ///< of a message
  struct Way;    ///< that messages of one kind go
  class OutgoingLink;

  void open(Cargo cargo, int stage, int peer, bool sends);
  /// What its messages consist of.
  Exchange::Parts fill(Place& place, const Way& way, int slot, bool sends);
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
  Place& place_for(Way& way, std::int64_t sample);
  void pack(const Way& way, Place& place);
  void unpack(const Way& way, Place& place);
  void handle(Way& way, Place& place);
  /// When a message of a peer was sent, by the clock here; nullopt: that is not known.
  std::optional<Clock::time_point> time_of_sending(int peer, Clock::time_point by_its_clock) const;
  void know(std::int64_t sample, const SampleInfo& info);
  void show(const Head& head);      ///< on rank 0, when those before it are shown
  FateCounts counted_here() const;  ///< in this run
  void count(int rank, const LossCounts& counts);
  bool all_have_come() const;                 ///< predictions to rank 0
  bool read(const Exchange::Letter& letter);  ///< false: it is of a later run
  ByteWriter letter(char kind) const;  ///< of this run
  void tell(int rank, const ByteWriter& letter);
  void tell_all(const ByteWriter& letter);
  void beat();  ///< the thread
  void look_for_losses();
  void give_up(bool lost);  ///< nobody here waits any longer
  void send_beat(int rank);
  void tell_times();
  std::string meters() const;
  void take_meters(ByteReader& bytes);

  Exchange& exchange_;
  Freight& freight_;
  const RankOptions& options_;
  const PipelineOptions& pipeline_;
  Shared& shared_;
  std::vector<std::unique_ptr<Link>> links_;  ///< to workers elsewhere
  std::vector<std::unique_ptr<Way>> ways_;
  std::vector<std::vector<Way*>> outgoing_;  ///< by cargo and stage
  std::vector<std::pair<Way*, Place*>> of_port_;
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
