// What ranks tell each other beside the pipeline's messages: that they live, what they have
// measured, how it ends.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

#include "engine/pipeline/rank_messages.h"

namespace millrace::engine {
namespace {

constexpr std::chrono::microseconds kRest{50};  ///< between two looks when nothing else is to do
constexpr std::chrono::milliseconds kBeat{500};
constexpr std::chrono::seconds kSilence{5};  ///< after which a rank is given up

}  // namespace

std::uint64_t clock_of_this_machine() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  std::error_code none;
  name += std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  return std::hash<std::string>()(name);
}

void RankLinks::beat() {
  std::unique_lock lock(exchange_.mutex());
  try {
    while (!ended_ && !closed_ && !lost_) {
      for (int rank = 0; rank < exchange_.ranks(); ++rank) {
        if (rank != this->rank()) send_beat(rank);
      }
      tell_times();
      if (rank() != 0) {
        tell(0, letter('M').raw(meters()));
        if (options_.facts) tell(0, letter('D').raw(options_.facts()));
      }
      poll();
      look_for_losses();
      closing_.wait_for(lock, kBeat, [&] { return closed_; });
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
    give_up(true);
  }
}

void RankLinks::send_beat(int rank) {
  tell(rank, letter('B').put(clocks_.beat_for(rank, Clock::now())));
}

void RankLinks::tell_times() {
  ByteWriter all = letter('L');
  for (const auto& way : ways_) {
    if (way->took.count() == 0) continue;
    const LinkTime time{.cargo = way->cargo,
                        .stage = way->stage,
                        .from = way->peer,
                        .to = rank(),
                        .bytes = way->bytes,
                        .apart = is_transfer(way->cargo) && way->bytes == sizeof(Head),
                        .messages = way->took.count(),
                        .ms = way->took.median_ms()};
    if (rank() == 0) exchange_.times().note(time);
    all.put(time);
  }
  if (rank() != 0) tell(0, all);
}

void RankLinks::look_for_losses() {
  for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
    if (heard_[rank] == Clock::time_point{} || Clock::now() - heard_[rank] < kSilence) continue;
    failure_ = exchange_.name(int(rank)) +
               " is gone: nothing was heard of it for 5 s; the last checkpoint stays";
    give_up(true);
  }
}

void RankLinks::end_of_stream(std::int64_t samples) {
  if (exchange_.on_end_of_stream) exchange_.on_end_of_stream();
  const std::lock_guard lock(exchange_.mutex());
  tell_all(letter('E').put(samples).put(shared_.replays));
}

void RankLinks::give_up(bool lost) {
  lost_ = lost_ || lost;
  if (lost) exchange_.abandon();
  shared_.stop.store(true);
  freight_.abandon();
}

void RankLinks::fail(const std::string& what, bool lost) {
  failed_ = true;
  const std::lock_guard lock(exchange_.mutex());
  give_up(false);
  if (lost) exchange_.abandon();
  tell_all(letter(lost ? 'G' : 'S').raw(what));
}

ByteWriter RankLinks::letter(char kind) const {
  return ByteWriter().put(options_.run).put(kind);
}

void RankLinks::tell(int rank, const ByteWriter& letter) {
  exchange_.post(rank, Exchange::About::pipeline, letter.bytes());
}

void RankLinks::tell_all(const ByteWriter& letter) {
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank != exchange_.rank()) tell(rank, letter);
  }
}

bool RankLinks::read(const Exchange::Letter& letter) {
  ByteReader bytes(letter.text);
  if (const int run = bytes.get<int>(); run != options_.run) {
    if (run < options_.run) return true;
    // Of the next run, which another rank has begun: until this one has, too.
    exchange_.post(rank(), Exchange::About::pipeline, letter.text);
    return false;
  }
  const char kind = bytes.get<char>();
  heard_[std::size_t(letter.from)] = kind == 'F' ? Clock::time_point{} : Clock::now();
  if (kind == 'E') {
    shared_.admitted = bytes.get<std::int64_t>();
    shared_.replays = bytes.get<std::int64_t>();
    shared_.applied.store(shared_.schedule.applied(shared_.admitted), std::memory_order_relaxed);
  } else if (kind == 'S' || kind == 'G') {
    if (failure_.empty()) failure_ = exchange_.name(letter.from) + ": " + std::string(bytes.rest());
    give_up(kind == 'G');
  } else if (kind == 'B') {
    const auto beat = bytes.get<RankClocks::Beat>();
    if (clocks_.heard(letter.from, beat, Clock::now()) && !ended_) send_beat(letter.from);
  } else if (kind == 'L') {
    while (!bytes.empty()) exchange_.times().note(bytes.get<LinkTime>());
  } else if (kind == 'M') {
    take_meters(bytes);
  } else if (kind == 'D') {
    if (options_.take_facts) options_.take_facts(bytes.rest());
  } else if (kind == 'F') {
    ++finished_;
    const auto final = bytes.get<Final>();
    if (has_last(letter.from)) finals_[std::size_t(letter.from)] = std::make_unique<Final>(final);
    if (rank() == 0) take_meters(bytes);
  }
  return true;
}

std::string RankLinks::meters() const {
  ByteWriter all;
  for (int replica_id = 0; replica_id < shared_.lowering.replica_ids(); ++replica_id) {
    if (here(replica_id)) all.put(replica_id).raw(shared_.monitor.meter(replica_id).bytes());
  }
  return all.bytes();
}

void RankLinks::take_meters(ByteReader& bytes) {
  while (!bytes.empty()) {
    const int replica_id = bytes.get<int>();
    shared_.monitor.meter(replica_id).take(bytes.raw(StageMeter::size_in_bytes()));
  }
}

template <class Done>
void RankLinks::poll_until(std::unique_lock<std::mutex>& lock, const Done& done) {
  for (poll(); !done(); poll()) {
    look_for_losses();
    if (lost_) throw RankLost(failure_);
    lock.unlock();
    std::this_thread::sleep_for(kRest);
    lock.lock();
  }
}

FateCounts RankLinks::finish() {
  std::unique_lock lock(exchange_.mutex());
  const bool failed = failed_ || lost_ || !failure_.empty();
  lock.unlock();
  if (exchange_.on_workers_ended) exchange_.on_workers_ended(failed);
  lock.lock();
  poll_until(lock, [&] {
    return std::all_of(outgoing_.begin(), outgoing_.end(), [&](const std::vector<Way*>& ways) {
      return std::all_of(ways.begin(), ways.end(), [&](const Way* way) {
        return std::all_of(way->places.begin(), way->places.end(),
                           [&](const Place& place) { return exchange_.over(place.port); });
      });
    });
  });
  const Final final{counts_of(counted_here(), pipeline_.guard), predictions_};
  if (has_last(rank())) finals_[std::size_t(rank())] = std::make_unique<Final>(final);
  ended_ = true;
  tell_times();
  tell_all(letter('F').put(final).raw(meters()));
  poll_until(lock, [&] {
    return finished_ == exchange_.ranks() - 1 && exchange_.all_posted() &&
           (rank() != 0 || all_have_come());
  });
  if (!failure_.empty()) throw std::runtime_error(failure_);
  FateCounts all;
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    const Final* const last = finals_[std::size_t(rank)].get();
    if (!last) continue;
    if (this->rank() == 0 && rank != 0) count(rank, last->counts);
    all += last->counts.fates;
  }
  return all;
}

bool RankLinks::all_have_come() const {
  std::int64_t sent = 0;
  for (std::size_t rank = 1; rank < finals_.size(); ++rank) {
    if (has_last(int(rank)) && !finals_[rank]) return false;
    if (finals_[rank]) sent += finals_[rank]->predictions;
  }
  return predictions_ == sent;
}

}  // namespace millrace::engine
