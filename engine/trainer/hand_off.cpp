// measure_hand_off(): what a message from core to core takes.
#include <thread>

#include "engine/pipeline/channels.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/repeats.h"

namespace millrace::engine {
namespace {

void await(TokenQueue& queue, Token& token) {
  while (!queue.receive(token, kPatience)) {
  }
}

/// Whoever has the token reads the message that the other has written, and writes it anew.
void rewrite(std::vector<float>& message) {
  float sum = 0;
  for (float& value : message) sum += value, value = sum;
}

/// Milliseconds of each of so many trips of a message to the other core and back.
std::vector<double> trips_ms(std::vector<float>& message, int rounds) {
  TokenQueue there(4), back(4);
  const auto never = [] { return false; };
  std::thread other([&] {
    pin_this_thread(1);
    Token token;
    for (int round = 0; round < rounds; ++round) {
      await(there, token);
      rewrite(message);
      back.send({token.sample + 1}, never);
    }
  });
  std::vector<double> trips;
  Token token;
  for (int round = 0; round < rounds; ++round) {
    const double start = now_ms();
    there.send({round}, never);
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
    // A round is two ways with the work at each end, which is no part of the way.
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

}  // namespace

plan::HandOff measure_hand_off() {
  return on_core(0, hand_off_here);
}

}  // namespace millrace::engine
