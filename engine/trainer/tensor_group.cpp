#include "engine/trainer/tensor_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/monitor/clock.h"
#include "engine/pipeline/rank_links.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

constexpr auto kSilence = 6s;      ///< after which a part does not come
constexpr auto kUnderWay = 200ms;  ///< what was sent before its rank left has come by then
constexpr int kLooks = 500;        ///< before it rests in between

}  // namespace

TensorGroup::~TensorGroup() {
  const std::lock_guard lock(exchange_.mutex());
  exchange_.close_ports();
}

TensorGroup::Sum& TensorGroup::open(int place, std::size_t numbers) {
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
        exchange_.open_to(rank, place, std::as_writable_bytes(std::span(sum->mine)));
    sum->from[std::size_t(rank)] =
        exchange_.open_from(rank, place, std::as_writable_bytes(std::span(theirs)));
    exchange_.start(sum->from[std::size_t(rank)]);
  }
  return *sum;
}

bool TensorGroup::all_over(const Sum& sum) {
  for (std::size_t rank = 0; rank < sum.theirs.size(); ++rank) {
    if (int(rank) == exchange_.rank()) continue;
    if (!exchange_.over(sum.from[rank]) || !exchange_.over(sum.to[rank])) return false;
  }
  return true;
}

void TensorGroup::look_for_leavers() {
  while (const auto letter = exchange_.letter(Exchange::About::pipeline)) {
    ++left_;
    if (letter->text == "failed") failed_ = letter->from;
  }
}

void TensorGroup::add_up(std::span<float> numbers, int place) {
  std::unique_lock lock(exchange_.mutex());
  Sum& sum = open(place, numbers.size());
  std::copy(numbers.begin(), numbers.end(), sum.mine.begin());
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank != exchange_.rank()) exchange_.start(sum.to[std::size_t(rank)]);
  }
  const Clock::time_point began = Clock::now();
  Clock::time_point left{};
  for (int looks = 0; !all_over(sum); ++looks) {
    if (looks % 64 == 0) {
      look_for_leavers();
      const Clock::time_point now = Clock::now();
      if (failed_ >= 0) throw std::runtime_error("a rank that shares its modules failed");
      if (left_ > 0 && left == Clock::time_point{}) left = now;
      if (left_ > 0 && now - left > kUnderWay) return;
      if (now - began > kSilence)
        throw RankLost(
            "a rank that shares the modules here is gone: it was waited for 6 s; the "
            "last checkpoint stays");
    }
    lock.unlock();
    if (looks < kLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(20us);
    }
    lock.lock();
  }
  std::fill(numbers.begin(), numbers.end(), 0.0f);
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    const bool own = rank == exchange_.rank();
    const std::vector<float>& part = own ? sum.mine : sum.theirs[std::size_t(rank)];
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += part[i];
    if (!own) exchange_.start(sum.from[std::size_t(rank)]);
  }
}

void TensorGroup::leave(bool failed) {
  const std::lock_guard lock(exchange_.mutex());
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank != exchange_.rank())
      exchange_.post(rank, Exchange::About::pipeline, failed ? "failed" : "done");
  }
}

}  // namespace millrace::engine
