#include <gst/gst.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>
#include <future>
#include <thread>

#include "io/source/codecs.h"
#include "io/source/gst_handles.h"
#include "io/source/source.h"
#include "io/source/source_kinds.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using GStreamer = FolderTest;
using FfmpegSource = FolderTest;

using std::chrono::milliseconds, std::chrono::nanoseconds;

// Runs a pipeline that ends by itself.
void run(const std::string& text) {
  gst_init(nullptr, nullptr);
  const GstRunning pipeline(gst_parse_launch(text.c_str(), nullptr));
  ASSERT_TRUE(pipeline) << text;
  gst_element_set_state(pipeline.get(), GST_STATE_PLAYING);
  const GstOwned<GstBus> bus(gst_element_get_bus(pipeline.get()));
  const GstOwned<GstMessage> last(gst_bus_timed_pop_filtered(
      bus.get(), 20 * GST_SECOND, GstMessageType(GST_MESSAGE_EOS | GST_MESSAGE_ERROR)));
  EXPECT_TRUE(last && GST_MESSAGE_TYPE(last.get()) == GST_MESSAGE_EOS) << text;
}

// 30 different pictures; 50 x 38: rows of RGB are no multiple of four bytes.
const std::string kBall =
    "videotestsrc pattern=ball num-buffers=30 ! video/x-raw,format=RGB,width=50,height=38,"
    "framerate=15/1";

TEST_F(GStreamer, BytesOfAPipelineAreExact) {
  const std::string colour =
      "gst:videotestsrc num-buffers=5 pattern=solid-color foreground-color=0xff12c856 ! "
      "video/x-raw,format=RGB,width=7,height=5,framerate=20/1";
  const auto source = open_source({.uri = colour});
  const SourceInfo info = source->info();
  constexpr int kColour[] = {0x12, 0xc8, 0x56};
  EXPECT_EQ(info.kind, "gstreamer");
  EXPECT_EQ(info.width, 7);
  EXPECT_EQ(info.height, 5);
  EXPECT_EQ(info.fps, 20.0);
  EXPECT_FALSE(info.live);
  EXPECT_NE(info.caps.find("video/x-raw"), std::string::npos);
  const Seen seen = read_all(*source);
  ASSERT_EQ(seen.frames.size(), 5u);
  EXPECT_EQ(seen.error, "");
  for (int n = 0; n < 5; ++n) {
    const Frame& frame = seen.frames[n];
    EXPECT_EQ(frame.pts, milliseconds(50 * n));
    ASSERT_EQ(frame.pixels.size(), 7u * 5u * 3u);
    for (std::size_t i = 0; i < frame.pixels.size(); ++i)
      ASSERT_EQ(frame.pixels[i], kColour[i % 3]) << i;
  }
}

TEST_F(GStreamer, TheUsersOwnAppsinkIsUsed) {
  const std::string head = "gst:videotestsrc num-buffers=4 ! videoconvert ! ";
  EXPECT_EQ(read_uri(head + "appsink sync=false").frames.size(), 4u);
  EXPECT_EQ(read_uri(head + "identity name=appsink_like ! identity !").frames.size(), 4u);
  const Seen wrong = read_uri(head + "appsink sync=false caps=video/x-raw,format=I420");
  EXPECT_NE(wrong.error.find("I420"), std::string::npos) << wrong.error;
}

TEST_F(GStreamer, RawPicturesOfAFileHaveTheCapsRate) {
  run(kBall + " ! filesink location=\"" + folder / "raw.rgb" + "\"");
  // Rows have 152 bytes in GStreamer's layout. Its segment counts bytes, not time.
  const GLogLevelFlags fatal = g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL);
  const Seen seen = read_uri("gst:filesrc blocksize=5776 location=\"" + folder / "raw.rgb" +
                             "\" ! video/x-raw,format=RGB,width=50,height=38,framerate=15/1");
  g_log_set_always_fatal(fatal);
  ASSERT_EQ(seen.frames.size(), 30u) << seen.error;
  EXPECT_NEAR(double(seen.frames[29].pts.count()), 29e9 / 15, 1e3);
}

TEST_F(GStreamer, AFrameMayChangeItsSizeOnTheWay) {
  const Seen seen = read_uri(
      "gst:concat name=c videotestsrc num-buffers=3 pattern=red ! "
      "video/x-raw,format=RGB,width=20,height=10,framerate=10/1 ! c. videotestsrc num-buffers=2 "
      "pattern=blue ! video/x-raw,format=RGB,width=9,height=30,framerate=10/1 ! c. c. ! identity");
  EXPECT_EQ(seen.error, "");
  ASSERT_EQ(seen.frames.size(), 5u);
  for (int n = 0; n < 5; ++n) {
    const Frame& frame = seen.frames[n];
    EXPECT_EQ(frame.width, n < 3 ? 20 : 9);
    EXPECT_EQ(frame.height, n < 3 ? 10 : 30);
    EXPECT_EQ(frame.pixels.size(), frame.bytes());
    EXPECT_EQ(frame.pixels.at(n < 3 ? 0 : 2), 255);
    EXPECT_EQ(frame.pts, milliseconds(100 * n)) << "time goes on";
  }
}

TEST_F(GStreamer, LosslessFilesComeBackBitForBit) {
  const std::vector<Frame> expected = read_uri("gst:" + kBall).frames;
  ASSERT_EQ(expected.size(), 30u);
  ASSERT_NE(expected[0].pixels, expected[29].pixels);
  const std::pair<std::string, std::string> kinds[] = {
      {"ffv1 in.mkv", "videoconvert ! video/x-raw,format=BGRx ! avenc_ffv1 ! matroskamux"},
      {"raw.avi", "videoconvert ! video/x-raw,format=BGR ! avimux"}};
  for (const auto& [name, encode] : kinds) {
    run(kBall + " ! " + encode + " ! filesink location=\"" + folder / name + "\"");
    const auto source = open_source({.uri = folder / name});
    for (int pass = 0; pass < 2; ++pass) {
      const Seen seen = read_all(*source);
      EXPECT_EQ(seen.error, "");
      ASSERT_EQ(seen.frames.size(), 30u) << name;
      for (int n = 0; n < 30; ++n) ASSERT_EQ(seen.frames[n].pixels, expected[n].pixels) << n;
      EXPECT_TRUE(source->rewind());
    }
  }
}

TEST_F(GStreamer, APipelineOrFileWithoutPicturesIsRefused) {
  for (const char* uri : {"gst:videotestsrc num-buffers=0", "gst:  ! "})
    EXPECT_NE(open_error(uri), "");
  run("audiotestsrc num-buffers=50 ! matroskamux ! filesink location=" + folder / "sound.mkv");
  EXPECT_EQ(open_error(folder / "sound.mkv"), folder / "sound.mkv: there is no video in it");
}

TEST_F(GStreamer, SoundThatOutlastsThePicturesIsNoTruncation) {
  // 2 s of pictures, 4 s of sound.
  run("videotestsrc num-buffers=20 ! video/x-raw,width=32,height=32,framerate=10/1 ! jpegenc ! "
      "matroskamux name=m ! filesink location=" +
      folder / "av.mkv" +
      " audiotestsrc num-buffers=40 samplesperbuffer=800 ! audio/x-raw,rate=8000 ! m.");
  const Seen seen = read_uri(folder / "av.mkv");
  EXPECT_EQ(seen.frames.size(), 20u);
  EXPECT_EQ(seen.error, "");
}

// The first part of a file, as a broken download leaves it.
std::string cut(const TestFolder& folder, const std::string& from, const std::string& name,
                double part) {
  const std::string bytes = bytes_of(from);
  put_bytes(folder / name, bytes.substr(0, std::size_t(double(bytes.size()) * part)));
  return folder / name;
}

TEST_F(GStreamer, ATruncatedFileGivesItsFramesAndThenAnError) {
  const std::string noise =
      "videotestsrc pattern=snow num-buffers=100 ! video/x-raw,width=64,height=48,framerate=10/1 "
      "! ";
  run(noise + "jpegenc ! matroskamux ! filesink location=" + folder / "whole.mkv");
  run(noise + "jpegenc ! qtmux faststart=true ! filesink location=" + folder / "whole.mov");
  run(noise + "jpegenc ! avimux ! filesink location=" + folder / "whole.avi");
  for (const std::string ending : {"mkv", "mov", "avi"}) {
    const auto source = open_source({.uri = folder / ("whole." + ending)});
    EXPECT_NEAR(source->info().duration_s, 10, 0.1) << ending;
    const Seen whole = read_all(*source);
    for (std::size_t n = 1; n < whole.frames.size(); ++n)
      ASSERT_GT(whole.frames[n].pts, whole.frames[n - 1].pts);
    EXPECT_EQ(whole.frames.size(), 100u) << ending;
    EXPECT_EQ(whole.error, "") << ending;
    const Seen part = read_uri(cut(folder, folder / ("whole." + ending), "part." + ending, 0.4));
    EXPECT_GT(part.frames.size(), 30u) << ending;
    EXPECT_LT(part.frames.size(), 45u) << ending;
    EXPECT_NE(part.error.find("s of 10.0 s (truncated?)"), std::string::npos)
        << ending << ": " << part.error;
  }
}

TEST_F(GStreamer, ALiveSourceSaysSoAndCannotRewind) {
  const auto source = open_source({.uri = "gst:videotestsrc is-live=true num-buffers=3 ! "
                                          "video/x-raw,framerate=50/1,width=8,height=8"});
  EXPECT_TRUE(source->info().live);
  EXPECT_EQ(source->info().duration_s, 0.0);
  EXPECT_EQ(read_all(*source).frames.size(), 3u);
  EXPECT_FALSE(source->rewind());
}

TEST_F(FfmpegSource, StandsInForAMissingDecoder) {
  run(kBall + " ! videoconvert ! video/x-raw,format=BGRx ! avenc_ffv1 ! matroskamux ! " +
      "filesink location=" + folder / "ball.mkv");
  EXPECT_EQ(open_source({.uri = folder / "ball.mkv"})->info().kind, "gstreamer");
  GstPluginFeature* const decoder = gst_registry_lookup_feature(gst_registry_get(), "avdec_ffv1");
  ASSERT_NE(decoder, nullptr);
  const guint rank = gst_plugin_feature_get_rank(decoder);
  gst_plugin_feature_set_rank(decoder, GST_RANK_NONE);
  EXPECT_THROW(open_gstreamer({.uri = folder / "ball.mkv"}), SourceError);
  const auto source = open_source({.uri = folder / "ball.mkv"});
  EXPECT_EQ(source->info().kind, "ffmpeg");
  EXPECT_EQ(read_all(*source).frames.size(), 30u);
  gst_plugin_feature_set_rank(decoder, rank);
  gst_object_unref(decoder);
}

TEST_F(FfmpegSource, ReadsAFileByItselfAndRefusesWhatIsNone) {
  run(kBall + " ! videoconvert ! video/x-raw,format=BGR ! avimux ! filesink location=" +
      folder / "ball.avi");
  const std::vector<Frame> expected = read_uri("gst:" + kBall).frames;
  const auto source = codecs().open_ffmpeg({.uri = folder / "ball.avi"}, folder / "ball.avi");
  EXPECT_EQ(source->info().kind, "ffmpeg");
  EXPECT_EQ(source->info().fps, 15.0);
  for (int pass = 0; pass < 2; ++pass) {
    const Seen seen = read_all(*source);
    ASSERT_EQ(seen.frames.size(), 30u);
    for (int n = 0; n < 30; ++n) ASSERT_EQ(seen.frames[n].pixels, expected[n].pixels) << n;
    EXPECT_TRUE(source->rewind());
  }
  const auto grey =
      codecs().open_ffmpeg({.uri = folder / "ball.avi", .channels = 1}, folder / "ball.avi");
  EXPECT_EQ(read_all(*grey).frames.at(0).pixels.size(), 50u * 38u);
  put_bytes(folder / "x.avi", "RIFF but no more");
  EXPECT_THROW(codecs().open_ffmpeg({.uri = folder / "x.avi"}, folder / "x.avi"), SourceError);
}

using OpenSource = FolderTest;

TEST_F(OpenSource, EveryKindsOwnExampleIsOfThatKind) {
  for (const SourceKind& kind : source_kinds()) {
    EXPECT_EQ(source_kind(kind.example), &kind) << kind.example;
    EXPECT_EQ(scheme_error(kind.example), "");
  }
  EXPECT_STREQ(source_kind("clip.mp4")->scheme, "file");
}

TEST_F(OpenSource, SaysWhatIsWrong) {
  EXPECT_EQ(
      open_error("rtps://u:p@host/x"),
      "rtps://***@host/x: unknown scheme \"rtps\"; known ones: file, rtsp, rtsps, http, https, "
      "v4l2, gst, images, synth");
  EXPECT_EQ(open_error(""), "source: no URI is given");
  expect_refused(folder.path(), "is a folder");
  expect_refused("v4l2:///dev/video_none", "no such device");
  EXPECT_NE(open_error(SourceOptions{.uri = "synth:shapes", .channels = 4}).find("channels"),
            std::string::npos);
}

TEST_F(OpenSource, APipeThatNobodyWritesToIsGivenUpInTime) {
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  SourceOptions options;
  options.uri = pipe;
  options.reconnect.open_limit = std::chrono::milliseconds(100);
  EXPECT_EQ(open_error(options), pipe + ": no picture came within 100 ms");
}

TEST_F(OpenSource, APipeWhoseWriterStallsCanBeClosed) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string clip = bytes_of("/usr/share/doc/opencv-doc/examples/data/vtest.avi");
  std::promise<void> closed;
  std::thread writer([&] {
    const int file = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
    for (std::size_t done = 0; done < clip.size() / 20;) {
      const ssize_t wrote = ::write(file, &clip[done], clip.size() / 20 - done);
      if (wrote < 0) break;
      done += std::size_t(wrote);
    }
    closed.get_future().wait();  // it never goes on
    ::close(file);
  });
  SourceOptions options;
  options.uri = pipe;
  std::unique_ptr<Source> source = open_source(options);
  Frame frame;
  EXPECT_EQ(source->read(frame, std::chrono::seconds(60)), ReadStatus::frame);
  EXPECT_EQ(frame.width, 768);
  while (source->read(frame, std::chrono::milliseconds(100)) == ReadStatus::frame) {
  }
  source.reset();
  closed.set_value();
  writer.join();
}

}  // namespace
}  // namespace millrace::io
