// A camera for tests: serves moving pictures over RTSP on loopback, in its own process, which can
// be killed and frozen. Prints its port, then serves until stdin closes. /ball: JPEG. /rateless:
// the same without a rate. /keys: H.264 with one key frame a second. /other: what `launch=` says.
#include <gst/rtsp-server/rtsp-server.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

struct Arguments {
  std::string port = "0";  ///< any free one
  std::string size = "width=64,height=48";
  std::string rate = "25";
  std::string launch;
  GstRTSPLowerTrans transport =
      GstRTSPLowerTrans(GST_RTSP_LOWER_TRANS_UDP | GST_RTSP_LOWER_TRANS_TCP);
};

// [port=N] [rate=FPS] [launch=ELEMENT ! ... PAYLOADER] [large] [tcp] [udp]
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int n = 1; n < argc; ++n) {
    const std::string word = argv[n];
    if (word.starts_with("port=")) arguments.port = word.substr(5);
    if (word.starts_with("rate=")) arguments.rate = word.substr(5);
    if (word.starts_with("launch=")) arguments.launch = word.substr(7);
    if (word == "large") arguments.size = "width=96,height=64";
    if (word == "tcp") arguments.transport = GST_RTSP_LOWER_TRANS_TCP;
    if (word == "udp") arguments.transport = GST_RTSP_LOWER_TRANS_UDP;
  }
  return arguments;
}

void serve(GstRTSPServer* server, const Arguments& arguments, const char* path,
           const std::string& pictures) {
  const std::string launch = "( " + pictures + " name=pay0 )";
  GstRTSPMediaFactory* factory = gst_rtsp_media_factory_new();
  gst_rtsp_media_factory_set_launch(factory, launch.c_str());
  gst_rtsp_media_factory_set_protocols(factory, arguments.transport);
  GstRTSPMountPoints* mounts = gst_rtsp_server_get_mount_points(server);
  gst_rtsp_mount_points_add_factory(mounts, path, factory);
  g_object_unref(mounts);
}

gboolean quit(GIOChannel*, GIOCondition, gpointer loop) {
  g_main_loop_quit(static_cast<GMainLoop*>(loop));
  return FALSE;
}

}  // namespace

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  const Arguments arguments = parse(argc, argv);
  GMainLoop* loop = g_main_loop_new(nullptr, FALSE);
  GstRTSPServer* server = gst_rtsp_server_new();
  gst_rtsp_server_set_address(server, "127.0.0.1");
  gst_rtsp_server_set_service(server, arguments.port.c_str());
  const std::string ball = "videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420," +
                           arguments.size + ",framerate=" + arguments.rate + "/1 ! ";
  serve(server, arguments, "/ball", ball + "jpegenc ! rtpjpegpay pt=26");
  // Some cameras do not announce a rate.
  serve(server, arguments, "/rateless",
        ball + "capssetter replace=true caps=video/x-raw,format=I420," + arguments.size +
            ",framerate=0/1 ! jpegenc ! rtpjpegpay pt=26");
  if (!arguments.launch.empty()) serve(server, arguments, "/other", arguments.launch);
  serve(server, arguments, "/keys",
        ball + "openh264enc gop-size=25 ! h264parse ! rtph264pay pt=96");
  if (gst_rtsp_server_attach(server, nullptr) == 0) return 1;
  std::printf("%d\n", gst_rtsp_server_get_bound_port(server));
  std::fflush(stdout);
  g_io_add_watch(g_io_channel_unix_new(0), G_IO_HUP, quit, loop);
  g_main_loop_run(loop);
  return 0;
}
