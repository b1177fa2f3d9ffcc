#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/pipeline/bytes.h"
#include "engine/pipeline/rank_ports.h"
#include "engine/pipeline/rank_pulse.h"

namespace millrace::engine {

/// Letters between ranks: heartbeats, measurements, the end of a run. Under Exchange::mutex().
class RankLetters {
 public:
  /// A rank's report when its workers have ended.
  struct Final {
    LossCounts counts;
    std::int64_t predictions = 0;  ///< sent to rank 0
  };

  /// `shared` and `ports` must outlive this.
  RankLetters(Shared& shared, const RankPorts& ports)
      : options_(*shared.pipeline.ranks),
        exchange_(*options_.exchange),
        shared_(shared),
        ports_(ports),
        pulse_(exchange_, std::chrono::seconds(5)),
        clocks_(exchange_.ranks(), clock_of_this_machine()),
        finals_(std::size_t(exchange_.ranks())) {}

  /// Sends a heartbeat, with the time here, to each other rank.
  void beat() {
    for (int rank = 0; rank < exchange_.ranks(); ++rank) {
      if (rank != exchange_.rank()) send_beat(rank);
    }
  }
  /// Sends this rank's measurements to rank 0.
  void report() {
    if (exchange_.rank() == 0) return note(ports_.times());
    ByteWriter all = letter(Kind::measurements);
    all.put(ports_.times()).put(options_.facts ? options_.facts() : std::string());
    for (int replica_id = 0; replica_id < shared_.lowering.replica_ids(); ++replica_id) {
      if (ports_.here(replica_id))
        all.put(replica_id).raw(shared_.pipeline.monitor.meter(replica_id).bytes());
    }
    tell(0, all);
  }
  /// Reads the letters that have arrived, up to one of a later run.
  void read() {
    while (finished_ < exchange_.ranks() - 1) {
      const auto letter = exchange_.letter(Exchange::About::pipeline);
      if (!letter || !read(*letter)) break;
    }
  }
  /// Stops the workers here if a rank is lost.
  void look_for_losses() {
    if (const std::string lost = pulse_.lost(); !lost.empty()) give_up(lost, true);
  }

  /// Announces to all that the stream has `samples`.
  void end_of_stream(std::int64_t samples) {
    tell_all(letter(Kind::end_of_stream).put(samples).put(shared_.admission.replays));
  }
  /// Announces to all that a worker here has failed. `lost`: because of a lost rank.
  void fail(const std::string& what, bool lost) {
    failed_ = true;
    stop(lost);
    tell_all(letter(lost ? Kind::lost : Kind::failed).raw(what));
  }
  /// Announces to all that the workers here have ended.
  void end(const Final& final) {
    if (ports_.has_last(exchange_.rank())) finals_[std::size_t(exchange_.rank())] = final;
    ended_ = true;
    report();
    tell_all(letter(Kind::ended).put(final));
  }
  /// Ends all waits here. `lost`: a rank is lost.
  void give_up(const std::string& why, bool lost) {
    failure_ = why;
    lost_ = lost_ || lost;
    stop(lost);
  }

  bool has_ended() const { return ended_; }  ///< this rank
  /// Whether the other ranks have ended, and know that this one has.
  bool all_ended() const { return finished_ == exchange_.ranks() - 1 && exchange_.all_posted(); }
  bool has_failed() const { return failed_ || lost_ || !failure_.empty(); }
  bool is_lost() const { return lost_; }
  /// The failure elsewhere; "" if none.
  const std::string& failure() const { return failure_; }
  /// Set if `rank` has a replica of the last stage and has ended.
  const std::optional<Final>& final(int rank) const { return finals_[std::size_t(rank)]; }
  /// When a message of `peer` was sent, by the clock here; nullopt: clock offset not known yet.
  std::optional<Clock::time_point> here(int peer, Clock::time_point by_its_clock) const {
    const std::optional<Clock::duration> ahead = clocks_.ahead(peer);
    if (!ahead) return std::nullopt;
    return std::min(by_its_clock - *ahead, Clock::now());
  }

 private:
  enum class Kind : char {
    beat = 'B',           ///< with the sender's time
    measurements = 'M',   ///< to rank 0
    end_of_stream = 'E',  ///< with the number of samples
    failed = 'S',         ///< with the error's text
    lost = 'G',           ///< the same, because of a lost rank
    ended = 'F',          ///< with Final
  };

  /// False if the letter belongs to a later run.
  bool read(const Exchange::Letter& letter) {
    ByteReader bytes(letter.text);
    if (const int run = bytes.get<int>(); run != options_.run) {
      if (run < options_.run) return true;
      // Another rank has begun the next run: keep the letter until this one has, too.
      exchange_.post(exchange_.rank(), Exchange::About::pipeline, letter.text);
      return false;
    }
    const auto kind = bytes.get<Kind>();
    pulse_.heard(letter.from);
    if (kind == Kind::end_of_stream) {
      shared_.admission.admitted = bytes.get<std::int64_t>();
      shared_.admission.replays = bytes.get<std::int64_t>();
      shared_.end.store(shared_.admission.admitted, std::memory_order_relaxed);
    } else if (kind == Kind::failed || kind == Kind::lost) {
      const std::string why = exchange_.name(letter.from) + ": " + std::string(bytes.rest());
      give_up(failure_.empty() ? why : failure_, kind == Kind::lost);
    } else if (kind == Kind::beat) {
      const auto beat = bytes.get<RankClocks::Beat>();
      if (clocks_.heard(letter.from, beat, Clock::now()) && !ended_) send_beat(letter.from);
    } else if (kind == Kind::measurements) {
      note(bytes.list<LinkTime>());
      const std::string_view facts = bytes.text();
      if (options_.take_facts) options_.take_facts(facts);
      while (!bytes.empty()) {
        StageMeter& meter = shared_.pipeline.monitor.meter(bytes.get<int>());
        meter.take(bytes.raw(sizeof(StageMeter::Measurements)));
      }
    } else if (kind == Kind::ended) {
      pulse_.ended(letter.from);
      ++finished_;
      if (ports_.has_last(letter.from)) finals_[std::size_t(letter.from)] = bytes.get<Final>();
    }
    return true;
  }
  ByteWriter letter(Kind kind) const { return ByteWriter().put(options_.run).put(kind); }
  void tell(int rank, const ByteWriter& letter) {
    exchange_.post(rank, Exchange::About::pipeline, letter.bytes());
  }
  void tell_all(const ByteWriter& letter) {
    exchange_.post_to_others(Exchange::About::pipeline, letter.bytes());
  }
  void send_beat(int rank) {
    tell(rank, letter(Kind::beat).put(clocks_.beat_for(rank, Clock::now())));
  }
  void note(const std::vector<LinkTime>& times) {
    const auto route = [](const LinkTime& of) {
      return std::tuple(of.cargo, of.stage, of.from, of.to);
    };
    for (const LinkTime& time : times) {
      const auto known = std::ranges::find(exchange_.times, route(time), route);
      if (known == exchange_.times.end()) {
        exchange_.times.push_back(time);
      } else {
        *known = time;
      }
    }
  }
  void stop(bool lost) {
    if (lost) exchange_.abandon();
    shared_.stop.store(true);
    options_.freight->abandon();
  }

  const RankOptions& options_;
  Exchange& exchange_;
  Shared& shared_;
  const RankPorts& ports_;
  RankPulse pulse_;
  RankClocks clocks_;
  int finished_ = 0;     ///< number of other ranks that have ended
  bool failed_ = false;  ///< a worker here has failed
  bool lost_ = false, ended_ = false;
  std::string failure_;
  std::vector<std::optional<Final>> finals_;  ///< [rank]; only those with the last stage
};

}  // namespace millrace::engine
