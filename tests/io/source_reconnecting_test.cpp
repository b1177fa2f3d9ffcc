// The rules of reconnecting, with scripted sources.
#include "io/source/source_reconnecting.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/io/loopback.h"
#include "tests/io/scripted_source.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds, std::chrono::seconds;

/// `frames` 10 ms apart from 0 on, then `then`; or no connection at all.
struct Connection {
  enum Then { ends = Script::ends, breaks = Script::breaks, silence = Script::is_silent, refused };
  int frames = 0;
  Then then = breaks;
  int width = 8;
};

/// Answers `there` and counts the calls.
OriginProbe scripted_probe(const bool& there, int& asked) {
  return [&there, &asked] {
    ++asked;
    return there;
  };
}

ReconnectOptions quick() {
  return {.silence = milliseconds(100),
          .open_limit = milliseconds(200),
          .least = milliseconds(0),
          .most = milliseconds(0)};
}

/// A source of one connection after another; the last one repeats.
struct Bench {
  explicit Bench(std::vector<Connection> script, ReconnectOptions options = quick(),
                 OriginProbe probe = nullptr, bool end_is_loss = true)
      : script(std::move(script)) {
    source = std::make_unique<ReconnectingSource>(
        options, open(), [this] { return open(); }, std::move(probe), end_is_loss);
    health = source->health();
  }
  std::unique_ptr<Source> open() {
    const Connection now = script[std::min<std::size_t>(opened++, script.size() - 1)];
    if (now.then == Connection::refused) throw SourceError("scripted: refused");
    return std::make_unique<ScriptedSource>(Script{.pts = every(milliseconds(10), now.frames),
                                                   .then = Script::Then(now.then),
                                                   .width = now.width});
  }
  /// Reads until `enough` or the end; false if that takes more than a minute.
  bool read_until(const std::function<bool()>& enough) {
    const Clock::time_point limit = Clock::now() + seconds(60);
    while (!enough()) {
      if (Clock::now() > limit) return false;
      const ReadStatus status = source->read(frame, milliseconds(5));
      if (status == ReadStatus::end) return ended = true;
      if (status == ReadStatus::frame) seen.push_back(frame);
    }
    return true;
  }
  bool read_frames(std::size_t count) {
    return read_until([&] { return seen.size() >= count; });
  }

  std::vector<Connection> script;
  std::size_t opened = 0;
  std::unique_ptr<ReconnectingSource> source;
  std::shared_ptr<const StreamHealth> health;
  Frame frame;
  std::vector<Frame> seen;
  bool ended = false;
};

TEST(Backoff, DoublesWithinItsBoundsByItsSeed) {
  std::set<milliseconds> firsts;
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    Backoff backoff(milliseconds(500), milliseconds(10000), seed);
    Backoff same(milliseconds(500), milliseconds(10000), seed);
    const int most[] = {1000, 2000, 4000, 8000, 10000, 10000, 10000};
    for (int n = 0; n < 7; ++n) {
      const milliseconds wait = backoff.next();
      EXPECT_GE(wait, milliseconds(most[n] / 2)) << n;
      EXPECT_LE(wait, milliseconds(most[n])) << n;
      EXPECT_EQ(wait, same.next()) << n;
    }
    backoff.reset();
    firsts.insert(backoff.next());
    EXPECT_LE(*firsts.rbegin(), milliseconds(1000));
  }
  EXPECT_GT(firsts.size(), 10u) << "not all clients come back at once";
  EXPECT_EQ(Backoff(milliseconds(0), milliseconds(0), 1).next(), milliseconds(0));
}

TEST(Reconnecting, GoesOnAfterWhateverHappens) {
  using C = Connection;
  Bench bench({{5, C::breaks},
               {5, C::silence},
               {0, C::refused},
               {0, C::silence},
               {0, C::breaks},
               {5, C::ends},
               {0, C::ends},
               {5, C::silence}});
  ASSERT_TRUE(bench.read_frames(20));
  EXPECT_EQ(bench.opened, 8u);
  EXPECT_EQ(bench.health->breaks, 3);
  EXPECT_EQ(bench.health->reconnects, 3);
  EXPECT_EQ(bench.health->attempts, 7);
  EXPECT_EQ(bench.health->frames_since, 5);
  EXPECT_TRUE(bench.health->connected);
  EXPECT_EQ(bench.health->last_error(), "the stream ended");
  for (int n = 1; n < 20; ++n) EXPECT_GT(bench.seen[n].pts, bench.seen[n - 1].pts) << n;
  EXPECT_GE(bench.health->away_ms, 100 + 200 - 20)
      << "a silence and an attempt in vain; the last silence is not over";
}

TEST(Reconnecting, SaysWhatHappened) {
  Bench bench({{2, Connection::silence}, {0, Connection::refused}});
  ASSERT_TRUE(bench.read_frames(2));
  EXPECT_TRUE(bench.health->connected);
  EXPECT_EQ(bench.health->last_error(), "");
  ASSERT_TRUE(bench.read_until([&] { return !bench.health->connected; }));
  EXPECT_EQ(bench.health->last_error(), "no picture for 0.1 s");
  ASSERT_TRUE(bench.read_until([&] { return bench.health->attempts > 0; }));
  EXPECT_EQ(bench.health->last_error(), "scripted: refused");
  EXPECT_EQ(bench.health->reconnects, 0);
}

TEST(Reconnecting, TimeGoesOnByWhatPassed) {
  ReconnectOptions options = quick();
  options.least = options.most = milliseconds(300);
  Bench bench({{50, Connection::breaks}}, options);
  const Clock::time_point begun = Clock::now();
  ASSERT_TRUE(bench.read_frames(51));
  const nanoseconds away = Clock::now() - begun, step = bench.seen[50].pts - bench.seen[49].pts;
  EXPECT_GE(step, milliseconds(300));
  EXPECT_LE(step, away + milliseconds(5));
  EXPECT_NEAR(double(bench.health->lost_upstream), step / milliseconds(10) - 1, 1);
}

TEST(Reconnecting, AnEndThatIsMeantIsAnEndAndANewSizeIsKnown) {
  Bench meant({{3, Connection::ends}}, quick(), nullptr, false);
  ASSERT_TRUE(meant.read_frames(4));
  EXPECT_TRUE(meant.ended);
  EXPECT_EQ(meant.seen.size(), 3u);
  EXPECT_EQ(meant.opened, 1u);
  Bench bench({{3, Connection::breaks, 8}, {3, Connection::silence, 20}});
  ASSERT_TRUE(bench.read_frames(4));
  EXPECT_EQ(bench.seen[2].width, 8);
  EXPECT_EQ(bench.seen[3].width, 20);
  EXPECT_EQ(bench.source->info().width, 20);
}

TEST(Reconnecting, WaitsBetweenAttempts) {
  ReconnectOptions options = quick();
  options.least = milliseconds(50);
  options.most = milliseconds(200);
  Bench bench({{1, Connection::breaks}, {0, Connection::refused}}, options);
  ASSERT_TRUE(bench.read_until([&] { return !bench.health->connected; }));
  const Clock::time_point broke = Clock::now();
  ASSERT_TRUE(bench.read_until([&] { return bench.health->attempts == 6; }));
  EXPECT_GE(Clock::now() - broke, milliseconds(50 + 100 + 3 * 100)) << "half of 100, 200, 200, ...";
}

TEST(Reconnecting, AnOriginThatIsBackIsTriedAtOnce) {
  ReconnectOptions options = quick();
  options.least = options.most = seconds(3600);
  bool there = false;
  int asked = 0;
  Bench bench({{1, Connection::breaks}, {1, Connection::silence}}, options,
              scripted_probe(there, asked));
  ASSERT_TRUE(bench.read_until([&] { return asked > 3; }));
  EXPECT_EQ(bench.health->attempts, 0);
  there = true;
  EXPECT_TRUE(bench.read_frames(2));
  EXPECT_EQ(bench.health->attempts, 1);
}

TEST(Reconnecting, AVainAttemptGivesWayToAnOriginThatIsBack) {
  ReconnectOptions options = quick();
  options.open_limit = seconds(3600);  // packets into nowhere
  bool there = false;
  int asked = 0;
  Bench bench({{1, Connection::breaks}, {0, Connection::silence}, {1, Connection::silence}},
              options, scripted_probe(there, asked));
  ASSERT_TRUE(bench.read_until([&] { return bench.opened == 2 && asked > 10; }));
  there = true;
  EXPECT_TRUE(bench.read_frames(2));
  EXPECT_EQ(bench.opened, 3u);
}

TEST(Reconnecting, AFrozenOriginIsAskedOnce) {
  bool there = true;
  int asked = 0;
  Bench bench({{1, Connection::silence}}, quick(), scripted_probe(there, asked));
  bench.script.push_back({0, Connection::silence});
  ASSERT_TRUE(bench.read_until([&] { return bench.health->attempts == 3; }));
  EXPECT_EQ(asked, 1);
}

TEST(Reconnecting, AConsumerThatDoesNotAskMakesNoSilence) {
  Bench bench({{5, Connection::silence}});
  ASSERT_TRUE(bench.read_frames(2));
  std::this_thread::sleep_for(milliseconds(300));
  ASSERT_TRUE(bench.read_frames(5));
  EXPECT_EQ(bench.health->breaks, 0);
}

bool answer(const OriginProbe& probe) {
  for (;;) {
    if (const std::optional<bool> said = probe()) return *said;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST(OriginProbe, APortIsThereOnceSomebodyListens) {
  Port port;
  for (const std::string before : {"rtsp://", "http://user:pass%40word@"}) {
    const auto probe =
        make_origin_probe(before + "127.0.0.1:" + std::to_string(port.number) + "/path:8?a@b#c");
    ASSERT_TRUE(probe);
    if (before == "rtsp://") {
      EXPECT_FALSE(answer(probe));
      EXPECT_FALSE(answer(probe));
      port.listen();
    }
    EXPECT_TRUE(answer(probe)) << before;
  }
  EXPECT_TRUE(answer(make_origin_probe("rtsp://localhost:" + std::to_string(port.number))))
      << "of several addresses";
  EXPECT_FALSE(answer(make_origin_probe("rtsp://[::1]:1/x")));
}

TEST(OriginProbe, ADeviceIsThereOrNotAndNothingToAskIsSaid) {
  const TestFolder folder;
  const auto probe = make_origin_probe("v4l2://" + folder / "video0");
  EXPECT_FALSE(answer(probe));
  put_bytes(folder / "video0", "x");
  EXPECT_TRUE(answer(probe));
  EXPECT_FALSE(make_origin_probe("gst:videotestsrc"));
  EXPECT_FALSE(make_origin_probe("rtsp://no host at all/x"));
  EXPECT_TRUE(make_origin_probe("rtsp://127.0.0.1/x")) << "by its usual port";
}

}  // namespace
}  // namespace millrace::io
