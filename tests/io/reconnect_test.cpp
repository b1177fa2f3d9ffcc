// Streams that break and come back: a thousand times, and a camera that is plugged in again.
#include <gst/base/gstpushsrc.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "io/source/source.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

// AddressSanitizer keeps what was freed for a while.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

long status_of(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stol(line.substr(key.size() + 1));
  }
  return -1;
}

struct Held {
  long threads = status_of("Threads");
  long kib = status_of("VmRSS");
  long files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
};

TEST(ReconnectSoak, ReconnectsLeaveNothingBehind) {
  SourceOptions options{.uri =
                            "gst:videotestsrc is-live=true ! video/x-raw,format=RGB,width=32,"
                            "height=32,framerate=1000/1 ! identity error-after=3"};
  options.reconnect.least = options.reconnect.most = milliseconds(0);
  const auto source = open_source(options);
  const auto health = source->health();
  const auto reconnected = [&](std::int64_t times) {
    const auto enough = [&] { return health->reconnects >= times; };
    return read_until(*source, enough, seconds(100));
  };
  ASSERT_TRUE(reconnected(100));
  const Held early;
  ASSERT_TRUE(reconnected(kSanitized ? 300 : 1000));
  const Held late;
  std::printf("after 100: %ld threads, %ld files, %ld KiB; at the end: %ld, %ld, %ld\n",
              early.threads, early.files, early.kib, late.threads, late.files, late.kib);
  EXPECT_LE(late.threads, early.threads + 2) << "GLib's pool keeps a few idle ones at times";
  EXPECT_LE(late.files, early.files);
  if (!kSanitized) {
    EXPECT_LE(late.kib, early.kib + 1024);
  }
}

// A test double of GStreamer's v4l2src, with a file as its device.
constexpr char kDevice[] = "device";
GstFlowReturn (*draw)(GstPushSrc*, GstBuffer*) = nullptr;

bool is_plugged_in(gpointer camera) {
  const auto* const device = static_cast<const char*>(g_object_get_data(G_OBJECT(camera), kDevice));
  return device && access(device, R_OK) == 0;
}

GstFlowReturn fill(GstPushSrc* camera, GstBuffer* buffer) {
  if (is_plugged_in(camera)) return draw(camera, buffer);
  GST_ELEMENT_ERROR(camera, RESOURCE, READ, ("the device is gone"), (nullptr));
  return GST_FLOW_ERROR;
}

void set_device(GObject* camera, guint, const GValue* value, GParamSpec*) {
  g_object_set_data_full(camera, kDevice, g_value_dup_string(value), g_free);
}

void begin_class(gpointer given, gpointer) {
  G_OBJECT_CLASS(given)->set_property = set_device;
  g_object_class_install_property(
      G_OBJECT_CLASS(given), 1,
      g_param_spec_string(kDevice, nullptr, nullptr, nullptr, G_PARAM_WRITABLE));
  draw = GST_PUSH_SRC_CLASS(given)->fill;
  GST_PUSH_SRC_CLASS(given)->fill = fill;
}

void begin_camera(GTypeInstance* camera, gpointer) {
  gst_base_src_set_live(GST_BASE_SRC(camera), TRUE);
}

/// Registers a "v4l2src" that shows test pictures while its device exists.
void stand_in_for_v4l2() {
  gst_init(nullptr, nullptr);
  GstElement* const usual = gst_element_factory_make("videotestsrc", nullptr);
  GTypeQuery query;
  g_type_query(G_OBJECT_TYPE(usual), &query);
  GTypeInfo info{};
  info.class_size = guint16(query.class_size);
  info.class_init = begin_class;
  info.instance_size = guint16(query.instance_size);
  info.instance_init = begin_camera;
  const GType type =
      g_type_register_static(G_OBJECT_TYPE(usual), "MillraceTestCamera", &info, GTypeFlags(0));
  gst_object_unref(usual);
  ASSERT_TRUE(gst_element_register(nullptr, "v4l2src", GST_RANK_NONE, type));
}

TEST(Replug, ACameraThatIsPluggedInAgainIsComeBackTo) {
  stand_in_for_v4l2();
  const TestFolder folder;
  const std::string device = folder / "video0";
  put_bytes(device, "x");
  const auto source = open_source({.uri = "v4l2://" + device});
  EXPECT_TRUE(source->info().live);
  const auto health = source->health();
  const auto becomes = [&](const std::function<bool()>& what) { return read_until(*source, what); };
  for (int times = 1; times <= 3; ++times) {
    ASSERT_TRUE(becomes([&] { return health->frames_since > 5; })) << health->last_error();
    unlink(device.c_str());
    ASSERT_TRUE(becomes([&] { return !health->connected; }));
    EXPECT_NE(health->last_error().find("the device is gone"), std::string::npos);
    ASSERT_TRUE(becomes([&] { return health->attempts > 0; }));  // in vain
    put_bytes(device, "x");
    ASSERT_TRUE(becomes([&] { return health->connected.load(); })) << health->last_error();
    EXPECT_EQ(health->breaks, times);
    EXPECT_EQ(health->reconnects, times);
  }
}

}  // namespace
}  // namespace millrace::io
