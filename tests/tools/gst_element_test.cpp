#include <gst/check/gstharness.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/io/test_folder.h"

namespace {

constexpr int kWidth = 24, kHeight = 16;
constexpr GstClockTime kFrame = GST_SECOND / 25;
constexpr char kCaps[] = "video/x-raw,format=RGB,width=24,height=16,framerate=25/1";
const std::string kSmall =
    "source.width=24;source.height=16;model.layers=2;model.features=2;pipeline.cut=[2];"
    "pipeline.capture=eager;task.kind=autoencode;model.preset=partime-cnn";

GstBuffer* frame(int number) {
  const gsize bytes = gsize(3) * kWidth * kHeight;
  GstBuffer* const buffer = gst_buffer_new_allocate(nullptr, bytes, nullptr);
  gst_buffer_memset(buffer, 0, guint8(10 * number), bytes);
  GST_BUFFER_PTS(buffer) = GstClockTime(number) * kFrame;
  GST_BUFFER_DURATION(buffer) = kFrame;
  return buffer;
}

using Properties = std::vector<std::pair<std::string, std::string>>;

/// The element between two test pads.
class Harness {
 public:
  /// `set`: keys beside those of a small network. `live`: latency; -1: not live.
  explicit Harness(const Properties& properties = {}, const std::string& set = "",
                   GstClockTimeDiff live = -1) {
    GstElement* const element = gst_element_factory_make("millrace", nullptr);
    gst_util_set_object_arg(G_OBJECT(element), "set", (kSmall + set).c_str());
    for (const auto& [name, value] : properties)
      gst_util_set_object_arg(G_OBJECT(element), name.c_str(), value.c_str());
    harness_ = gst_harness_new_with_element(element, "sink", "src");
    gst_object_unref(element);
    gst_harness_set_live(harness_, live >= 0);
    if (live >= 0) gst_harness_set_upstream_latency(harness_, GstClockTime(live));
    start();
  }
  ~Harness() { gst_harness_teardown(harness_); }

  void start() { gst_harness_set_src_caps_str(harness_, kCaps); }
  GstFlowReturn push(int number) { return gst_harness_push(harness_, frame(number)); }
  /// Frames from `begin` to before `end`.
  void push_all(int begin, int end) {
    for (int i = begin; i < end; ++i) ASSERT_EQ(push(i), GST_FLOW_OK);
  }
  bool push_event(GstEvent* event) { return gst_harness_push_event(harness_, event); }

  /// The time of the next picture; GST_CLOCK_TIME_NONE after a time-out.
  GstClockTime pull() {
    GstBuffer* const buffer = gst_harness_pull(harness_);
    if (!buffer) return GST_CLOCK_TIME_NONE;
    const GstClockTime pts = GST_BUFFER_PTS(buffer);
    gst_buffer_unref(buffer);
    return pts;
  }
  /// Frames from `begin` to before `end`, each of which shows its picture.
  void push_and_pull(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      ASSERT_EQ(push(i), GST_FLOW_OK);
      EXPECT_EQ(pull(), GstClockTime(i) * kFrame);
    }
  }
  /// Ends the stream, and waits for its end.
  void end() {
    push_event(gst_event_new_eos());
    while (GstEvent* const event = gst_harness_pull_event(harness_)) {
      const bool end = GST_EVENT_TYPE(event) == GST_EVENT_EOS;
      gst_event_unref(event);
      if (end) return;
    }
    ADD_FAILURE() << "no end of stream";
  }
  /// The second half of a flush, and a new segment.
  void begin_again() {
    ASSERT_TRUE(push_event(gst_event_new_flush_stop(TRUE)));
    GstSegment segment;
    gst_segment_init(&segment, GST_FORMAT_TIME);
    ASSERT_TRUE(push_event(gst_event_new_segment(&segment)));
  }
  GstHarness* operator->() { return harness_; }
  GstHarness* get() { return harness_; }

 private:
  GstHarness* harness_ = nullptr;
};

class GstElement : public millrace::io::FolderTest {
 protected:
  void expect_trained(int frames) {
    const std::string told = "\"trained\": " + std::to_string(frames) + ",";
    EXPECT_NE(millrace::io::bytes_of(report).find(told), std::string::npos);
  }

  const std::string weights = folder / "w.safetensors", report = folder / "r.json";
};

TEST_F(GstElement, EachPictureBearsTheTimeOfTheFrameThatItPredicts) {
  Harness().push_and_pull(0, 10);
}

TEST_F(GstElement, ASegmentOfBytesHasNoTimes) {
  Harness harness;
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_BYTES);
  ASSERT_TRUE(harness.push_event(gst_event_new_segment(&segment)));
  harness.push_all(0, 3);  // any warning of GStreamer's ends the test
  harness.end();
  EXPECT_EQ(gst_harness_buffers_received(harness.get()), 3u);
}

TEST_F(GstElement, APictureOfTheNextFrameBearsThatOnesTime) {
  Harness harness({}, ";task.kind=next-frame;task.horizon=2");
  harness.push_all(0, 6);
  for (int i = 2; i < 6; ++i) EXPECT_EQ(harness.pull(), GstClockTime(i) * kFrame);
}

TEST_F(GstElement, AFlushThrowsAwayPicturesButNothingThatWasLearned) {
  Harness harness(Properties{{"report", report}});
  harness.push_all(0, 4);
  for (int i = 0; i < 4; ++i) harness.pull();
  ASSERT_TRUE(harness.push_event(gst_event_new_flush_start()));
  EXPECT_EQ(harness.push(4), GST_FLOW_FLUSHING);
  harness.begin_again();
  harness.push_and_pull(100, 103);  // no picture from before the flush
  harness.end();
  expect_trained(7);
}

TEST_F(GstElement, ASeekAfterTheEndBeginsARunThatGoesOnFromItsWeights) {
  Harness harness(Properties{{"weights", weights}});
  ASSERT_EQ(harness.push(0), GST_FLOW_OK);
  harness.end();
  const auto tensors = [](const std::string& file) {  // after the header
    const std::string all = millrace::io::bytes_of(file);
    return all.substr(all.find_first_not_of(' ', all.find("}}") + 2));
  };
  const std::string first = tensors(weights), copy = folder / "copy.safetensors";
  std::filesystem::copy_file(weights, copy);
  harness.push_event(gst_event_new_flush_start());
  harness.begin_again();
  ASSERT_EQ(harness.push(1), GST_FLOW_OK);
  harness.end();
  EXPECT_EQ(gst_harness_buffers_received(harness.get()), 2u);
  EXPECT_TRUE(tensors(weights) != first);
  Harness other(Properties{{"weights", copy}});
  ASSERT_EQ(other.push(1), GST_FLOW_OK);
  other.end();
  EXPECT_TRUE(tensors(copy) == tensors(weights));
}

TEST_F(GstElement, ToStopBeforeTheEndSavesToo) {
  {
    Harness harness(Properties{{"report", report}});
    harness.push_all(0, 3);
    harness.pull();
  }
  EXPECT_NE(millrace::io::bytes_of(report).find("\"in_flight\": 0"), std::string::npos);
}

TEST_F(GstElement, StoppedAndStartedAgainItShowsPicturesByItsPropertiesThen) {
  Harness harness;
  for (const GstState stopped : {GST_STATE_READY, GST_STATE_NULL}) {
    harness.push_and_pull(0, 3);
    gst_element_set_state(harness->element, stopped);
    g_object_set(harness->element, "report", report.c_str(), nullptr);
    gst_element_set_state(harness->element, GST_STATE_PLAYING);
    harness.push_event(gst_event_new_stream_start("again"));
  }
  harness.start();
  expect_trained(3);  // the property was set while it was stopped
}

TEST_F(GstElement, ALiveStreamIsNeverBlocked) {
  Harness harness({}, "", 0);
  // Nothing takes the pictures: a blocking queue would fill and stop the camera.
  GstPad* const peer = harness->sinkpad;
  const gulong block = gst_pad_add_probe(
      peer, GstPadProbeType(GST_PAD_PROBE_TYPE_BLOCK | GST_PAD_PROBE_TYPE_BUFFER),
      [](GstPad*, GstPadProbeInfo*, gpointer) { return GST_PAD_PROBE_OK; }, nullptr, nullptr);
  harness.push_all(0, 500);
  gst_pad_remove_probe(peer, block);
}

TEST_F(GstElement, LatencyIsAFrameForEachStageAndOneThatWaits) {
  Harness harness({}, "", 10 * GST_MSECOND);
  EXPECT_EQ(gst_harness_query_latency(harness.get()), 10 * GST_MSECOND + 3 * kFrame);
}

TEST_F(GstElement, WhatIsTooLateIsNotDrawnButLearned) {
  Harness harness(Properties{{"report", report}});
  ASSERT_EQ(harness.push(0), GST_FLOW_OK);
  harness.pull();
  gst_harness_push_upstream_event(
      harness.get(),
      gst_event_new_qos(GST_QOS_TYPE_UNDERFLOW, 2.0, 3 * GstClockTimeDiff(kFrame), 0));
  harness.push_all(1, 11);
  harness.end();
  // Frames 1 to 7 are up to twice as late, plus a frame.
  EXPECT_EQ(gst_harness_buffers_received(harness.get()), 4u);
  expect_trained(11);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  gst_init(&argc, &argv);
  g_log_set_always_fatal(GLogLevelFlags(G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING));
  GError* error = nullptr;
  GstPlugin* const plugin = gst_plugin_load_file(MILLRACE_GST_PLUGIN, &error);
  if (!plugin) {
    g_printerr("%s: %s\n", MILLRACE_GST_PLUGIN, error->message);
    return 1;
  }
  return RUN_ALL_TESTS();
}
