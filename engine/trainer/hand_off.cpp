#include <limits>
#include <thread>

#include "engine/pipeline/channels.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/repeats.h"
#include "engine/trainer/sum_group.h"

namespace millrace::engine {
namespace {

void put(TokenQueue& queue, const Token& token) {
  while (!queue.offer(token, kPatience)) {
  }
}

void await(TokenQueue& queue, Token& token) {
  while (!queue.receive(token, kPatience)) {
  }
}

/// Reads the other core's message and writes to all of it.
void rewrite(std::vector<float>& message) {
  float sum = 0;
  for (float& value : message) sum += value, value = sum;
}

/// Milliseconds of each round trip of a message to the other core.
std::vector<double> trips_ms(std::vector<float>& message, int rounds) {
  TokenQueue there(4), back(4);
  std::thread other([&] {
    pin_this_thread(1);
    Token token;
    for (int round = 0; round < rounds; ++round) {
      await(there, token);
      rewrite(message);
      put(back, {token.sample + 1});
    }
  });
  std::vector<double> trips;
  Token token;
  for (int round = 0; round < rounds; ++round) {
    const double start = now_ms();
    put(there, {round});
    await(back, token);
    rewrite(message);
    if (round > 10) trips.push_back(now_ms() - start);
  }
  other.join();
  return trips;
}

plan::HandOff hand_off_here() {
  plan::HandOff result{.between = "cpu-cpu", .points = {}, .spread = {}};
  if (usable_cores() < 2) return result;
  constexpr int kRounds = 200, kBatches = 10;
  for (const std::size_t bytes : {1u << 10, 1u << 14, 1u << 17, 1u << 20, 1u << 22}) {
    std::vector<float> message(bytes / sizeof(float), 1.0f);
    std::vector<double> trips, alone;
    plan::Measured way;
    // Half of a round trip, without the work at its ends.
    for (int batch = 0; batch < kBatches && !(way.median > 2 * way.spread && way.spread > 0);
         ++batch) {
      for (const double ms : trips_ms(message, kRounds)) trips.push_back(ms);
      for (int round = 0; round < kRounds; ++round) {
        const double start = now_ms();
        rewrite(message);
        alone.push_back(now_ms() - start);
      }
      const plan::Measured trip = measured(trips), work = measured(alone);
      way = {trip.median / 2 - work.median, trip.spread / 2 + work.spread};
    }
    if (way.median <= way.spread) continue;  // noise
    result.points.emplace_back(double(bytes), way.median);
    result.spread.push_back(way.spread);
  }
  return result;
}

/// Milliseconds of a sum. Every sum is a barrier, so all ranks begin the next together. Takes the
/// fastest of several batches: waiting for a preempted rank would add milliseconds.
plan::Measured sum_ms(SumGroup& group, std::vector<float>& numbers, int place) {
  constexpr int kBatches = 20, kSums = 8;
  plan::Measured quickest{.median = std::numeric_limits<double>::infinity()};
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<double> all;
    for (int sum = 0; sum < kSums; ++sum) {
      const double before = now_ms();
      group.add_up(numbers, place);
      all.push_back(now_ms() - before);
    }
    const plan::Measured ms = measured(all);
    if (ms.median < quickest.median) quickest = ms;
  }
  return quickest;
}

}  // namespace

plan::HandOff measure_hand_off() {
  return on_core(0, hand_off_here);
}

plan::HandOff measure_sums(Exchange& exchange) {
  plan::HandOff result{.between = plan::kSums, .points = {}, .spread = {}};
  on_core(exchange.rank(), [&] {
    SumGroup group(exchange);
    int place = 0;
    for (const std::size_t bytes : {4u, 1u << 12, 1u << 15, 1u << 17, 1u << 19, 1u << 21}) {
      std::vector<float> numbers(bytes / sizeof(float), 0.0f);
      const plan::Measured ms = sum_ms(group, numbers, place++);
      result.points.emplace_back(double(bytes) * (exchange.ranks() - 1), ms.median);
      result.spread.push_back(ms.spread);
    }
  });
  return result;
}

}  // namespace millrace::engine
