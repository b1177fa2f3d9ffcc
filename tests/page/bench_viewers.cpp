#include "tests/page/bench_viewers.h"

#include <algorithm>  // percentiles
#include <atomic>     // stop
#include <cstdio>     // results
#include <thread>     // workers
#include <vector>     // times

#include <time.h>  // processor time

#include "io/source/frame.h"
#include "tools/page/server.h"
#include "tests/page/raw_viewers.h"

namespace millrace::page {
namespace {

using io::Clock;

constexpr int kRounds = 5;
constexpr int kStalled = 100;

double ns(Clock::duration d) {
  return std::chrono::duration<double, std::nano>(d).count();
}

/// What came of one turn.
struct Turn {
  double steps_a_second = 0, step_p50_us = 0, step_p99_us = 0;
  double publish_mean_ns = 0, publish_max_ns = 0;
  double others_ms = 0;  ///< processor time a second of all threads that are no stage's
  std::int64_t shown = 0;
};

double percentile(std::vector<double>& values, double q) {
  const auto at = values.begin() + std::ptrdiff_t(q * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double processor_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// Less than a millisecond of arithmetic, as a stage would do.
float work(std::vector<float>& values) {
  float sum = 0;
  for (int pass = 0; pass < 40; ++pass) {
    for (float& value : values) value = value * 0.999f + 0.001f;
    sum += values[std::size_t(pass)];
  }
  return sum;
}

void copy(const std::vector<float>& from, page::PictureBoard& board, std::int64_t sample) {
  if (page::Pictures* const room = board.room()) {
    std::copy(from.begin(), from.end(), room->input.begin());
    std::copy(from.begin(), from.end(), room->target.begin());
    std::copy(from.begin(), from.end(), room->prediction.begin());
    board.show(sample);
  }
}

/// The last stage at work; other stages on the other cores.
Turn take_turn(page::PictureBoard& board, std::size_t elements, double seconds) {
  std::atomic<bool> stop{false};
  std::atomic<double> worked{0};  // processor time of the stages
  const double process = processor_s(CLOCK_PROCESS_CPUTIME_ID);
  const double mine = processor_s(CLOCK_THREAD_CPUTIME_ID);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([&stop, &worked] {
      for (std::vector<float> values(100'000); !stop;) work(values);
      worked += processor_s(CLOCK_THREAD_CPUTIME_ID);
    });
  }
  std::vector<float> values(100'000), picture(elements, 0.5f);
  std::vector<double> steps, publishes;
  const std::int64_t shown = board.shown();
  const Clock::time_point start = Clock::now();
  for (Clock::time_point at = start; ns(at - start) < seconds * 1e9;) {
    work(values);
    const Clock::time_point before = Clock::now();
    copy(picture, board, std::int64_t(steps.size()));
    const Clock::time_point after = Clock::now();
    publishes.push_back(ns(after - before));
    steps.push_back(ns(after - at) * 1e-3);
    at = after;
  }
  stop = true;
  for (std::thread& other : others) other.join();
  worked += processor_s(CLOCK_THREAD_CPUTIME_ID) - mine;
  const double all = processor_s(CLOCK_PROCESS_CPUTIME_ID) - process;
  Turn turn{.steps_a_second = double(steps.size()) / seconds, .shown = board.shown() - shown};
  for (const double one : publishes) turn.publish_mean_ns += one / double(publishes.size());
  turn.others_ms = (all - worked) * 1e3 / seconds;
  turn.publish_max_ns = *std::max_element(publishes.begin(), publishes.end());
  turn.step_p50_us = percentile(steps, 0.5);
  turn.step_p99_us = percentile(steps, 0.99);
  return turn;
}

/// Of each number the median over the rounds.
void print(const char* name, const std::vector<Turn>& turns) {
  const auto median = [&](double Turn::*number) {
    std::vector<double> values;
    for (const Turn& turn : turns) values.push_back(turn.*number);
    return percentile(values, 0.5);
  };
  std::printf("%-12s %9.1f %9.1f %9.1f %11.0f %11.0f %9lld %12.2f\n", name,
              median(&Turn::steps_a_second), median(&Turn::step_p50_us), median(&Turn::step_p99_us),
              median(&Turn::publish_mean_ns), median(&Turn::publish_max_ns),
              static_cast<long long>(turns.back().shown), median(&Turn::others_ms));
}

}  // namespace

void bench_viewers(int size, double seconds) {
  const page::PictureShape shape{.channels = 3, .height = size, .width = size};
  page::PictureBoard board(shape, shape);
  page::Snapshot snapshot;
  snapshot.stages.resize(4);
  page::WebServer server(page::web_options("127.0.0.1:0", ""),
                       {.look = [&snapshot] { return snapshot; }, .pictures = &board});
  std::vector<Turn> nobody, one, stalled;
  for (int round = 0; round < kRounds; ++round) {
    nobody.push_back(take_turn(board, shape.elements(), seconds));
    {
      const RawViewers viewers(server.port(), 1, /*reads=*/true);
      one.push_back(take_turn(board, shape.elements(), seconds));
    }
    const RawViewers viewers(server.port(), kStalled, /*reads=*/false);
    stalled.push_back(take_turn(board, shape.elements(), seconds));
  }
  std::printf("%-12s %9s %9s %9s %11s %11s %9s %12s\n", "viewers", "steps/s", "p50 us", "p99 us",
              "publish ns", "longest ns", "shown", "server ms/s");
  print("none", nobody);
  print("1 reading", one);
  print("100 stalled", stalled);
}

}  // namespace millrace::page
