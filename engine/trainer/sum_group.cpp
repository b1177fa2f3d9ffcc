#include "engine/trainer/sum_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/monitor/clock.h"
#include "engine/pipeline/rank_options.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

constexpr auto kUnderWay = 200ms;  ///< what was sent before its rank left has come by then
/// Looks before it yields, and yields before it sleeps. On a busy machine a yield takes
/// milliseconds, and parts are a few microseconds apart.
constexpr int kLooks = 100, kYields = 500;

}  // namespace

SumGroup::SumGroup(Exchange& exchange) : exchange_(exchange) {}

SumGroup::~SumGroup() {
  const std::lock_guard lock(exchange_.mutex());
  exchange_.close_ports();
}

SumGroup::Sum& SumGroup::open(int place, std::size_t numbers) {
  std::unique_ptr<Sum>& sum = sums_[place];
  if (sum) return *sum;
  sum = std::make_unique<Sum>();
  sum->mine.resize(numbers);
  sum->theirs.resize(std::size_t(exchange_.ranks()));
  sum->to.resize(sum->theirs.size());
  sum->from.resize(sum->theirs.size());
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank == exchange_.rank()) continue;
    std::vector<float>& theirs = sum->theirs[std::size_t(rank)];
    theirs.resize(numbers);
    sum->to[std::size_t(rank)] =
        exchange_.open_to(rank, place, {std::as_writable_bytes(std::span(sum->mine))});
    sum->from[std::size_t(rank)] =
        exchange_.open_from(rank, place, {std::as_writable_bytes(std::span(theirs))});
    exchange_.start(sum->from[std::size_t(rank)]);
  }
  return *sum;
}

bool SumGroup::all_over(const Sum& sum) {
  for (std::size_t rank = 0; rank < sum.theirs.size(); ++rank) {
    if (int(rank) == exchange_.rank()) continue;
    if (!exchange_.over(sum.from[rank]) || !exchange_.over(sum.to[rank])) return false;
  }
  return true;
}

void SumGroup::beat() {
  const std::lock_guard lock(exchange_.mutex());
  const Clock::time_point now = Clock::now();
  if (now - beaten_ < RankPulse::kBeat) return;
  beaten_ = now;
  post("alive");
  read_letters();
}

void SumGroup::leave(bool failed) {
  const std::lock_guard lock(exchange_.mutex());
  post(failed ? "failed" : "done");
}

void SumGroup::read_letters() {
  while (const auto letter = exchange_.letter(Exchange::About::pipeline)) {
    pulse_.heard(letter->from);
    if (letter->text == "alive") continue;
    any_left_ = true;
    pulse_.ended(letter->from);
    if (letter->text == "failed") failure_ = exchange_.name(letter->from) + " failed";
  }
}

void SumGroup::require_alive() {
  read_letters();
  if (!failure_.empty()) throw std::runtime_error(failure_);
  if (const std::string lost = pulse_.lost(); !lost.empty()) throw RankLost(lost);
}

void SumGroup::add_up(std::span<float> numbers, int place) {
  std::unique_lock lock(exchange_.mutex());
  Sum& sum = open(place, numbers.size());
  std::copy(numbers.begin(), numbers.end(), sum.mine.begin());
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank != exchange_.rank()) exchange_.start(sum.to[std::size_t(rank)]);
  }
  Clock::time_point left{};
  for (int looks = 0; !all_over(sum); ++looks) {
    if (looks % 64 == 0) {
      require_alive();
      if (any_left_ && left == Clock::time_point{}) left = Clock::now();
      if (any_left_ && Clock::now() - left > kUnderWay) return;
    }
    lock.unlock();
    if (looks > kLooks + kYields) {
      std::this_thread::sleep_for(20us);
    } else if (looks > kLooks) {
      std::this_thread::yield();
    }
    lock.lock();
  }
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    const bool own = rank == exchange_.rank();
    const std::vector<float>& part = own ? sum.mine : sum.theirs[std::size_t(rank)];
    if (rank == 0) {
      std::copy(part.begin(), part.end(), numbers.begin());
    } else {
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += part[i];
    }
    if (!own) exchange_.start(sum.from[std::size_t(rank)]);
  }
}

}  // namespace millrace::engine
