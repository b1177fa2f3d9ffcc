// A camera to test with: serves moving pictures over RTSP on loopback, in a process of its own.
// Prints its port, then serves until it is killed or stdin closes.
#include <gst/rtsp-server/rtsp-server.h>  // the server

#include <cstdio>  // the port

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  GMainLoop* loop = g_main_loop_new(nullptr, FALSE);
  GstRTSPServer* server = gst_rtsp_server_new();
  gst_rtsp_server_set_address(server, "127.0.0.1");
  gst_rtsp_server_set_service(server, "0");  // any free port
  GstRTSPMediaFactory* factory = gst_rtsp_media_factory_new();
  gst_rtsp_media_factory_set_launch(
      factory,
      "( videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width=64,height=48,"
      "framerate=25/1 ! "
      "jpegenc ! rtpjpegpay name=pay0 pt=26 )");
  GstRTSPMountPoints* mounts = gst_rtsp_server_get_mount_points(server);
  gst_rtsp_mount_points_add_factory(mounts, "/ball", factory);
  g_object_unref(mounts);
  if (gst_rtsp_server_attach(server, nullptr) == 0) return 1;
  std::printf("%d\n", gst_rtsp_server_get_bound_port(server));
  std::fflush(stdout);
  GIOChannel* input = g_io_channel_unix_new(0);
  g_io_add_watch(
      input, G_IO_HUP,
      [](GIOChannel*, GIOCondition, gpointer main) -> gboolean {
        g_main_loop_quit(static_cast<GMainLoop*>(main));
        return FALSE;
      },
      loop);
  g_main_loop_run(loop);
  return 0;
}
