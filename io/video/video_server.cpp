// Encodes once for all RTSP viewers, and only while there are any.
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <gst/rtsp-server/rtsp-server.h>

#include "io/network/dial.h"
#include "io/source/gst_pipeline.h"
#include "io/source/uri.h"
#include "io/video/video_feed.h"

namespace millrace::io {
namespace {

// Time queued for TCP viewers; beyond it, the oldest buffers are dropped.
constexpr guint64 kBacklog = GST_SECOND;

/// Shared with the server's callbacks, which may outlive the writer.
struct Stage {
  explicit Stage(const VideoWriterOptions& options) : feed(options) {}
  VideoFeed feed;
  std::mutex mutex;
  GstOwned<GstElement> source;  ///< null without viewers
};
using Shared = std::shared_ptr<Stage>;

// The server's queues before its sinks hold one buffer. If all TCP viewers are slow, the server
// stops reading theirs, which soon blocks everybody. Leaky queues drop buffers instead.
void make_leaky(GstElement* element) {
  if (std::string_view(GST_OBJECT_NAME(gst_element_get_factory(element))) != "queue") return;
  gst_util_set_object_arg(G_OBJECT(element), "leaky", "downstream");
  g_object_set(element, "max-size-buffers", 0u, "max-size-bytes", 0u, "max-size-time", kBacklog,
               nullptr);
}

// The first viewer creates the pipeline, which all others share.
void set_up(GstRTSPMedia* media, const Shared& stage) {
  const GstOwned<GstElement> bin(gst_rtsp_media_get_element(media));
  GstOwned<GstElement> source = child(bin.get(), "from");
  stage->feed.set_up(GST_APP_SRC_CAST(source.get()));
  const GstOwned<GstElement> pipeline(GST_ELEMENT(gst_element_get_parent(bin.get())));
  connect(pipeline.get(), "deep-element-added",
          [](GstBin*, GstBin*, GstElement* element) { make_leaky(element); });
  connect(media, "unprepared", [stage](GstRTSPMedia*) {
    const std::lock_guard lock(stage->mutex);
    stage->source.reset();
  });
  const std::lock_guard lock(stage->mutex);
  stage->source = std::move(source);
}

// A connection without a stream, which needs the password if there is one, may stay this long, and
// gives way to newcomers when there are many.
constexpr gint64 kStrangerPatience = 20 * G_USEC_PER_SEC;
constexpr int kMostClients = 64;
constexpr char kSince[] = "millrace-since";  // when a client connected, in microseconds

bool is_stranger(GstRTSPClient* client) {
  return GstOwned<GList>(gst_rtsp_client_session_filter(client, nullptr, nullptr)) == nullptr;
}

gint64 age(GstRTSPClient* client) {
  const auto since = gint64(GPOINTER_TO_SIZE(g_object_get_data(G_OBJECT(client), kSince)));
  return g_get_monotonic_time() - since;
}

/// Disconnects strangers that stayed too long, and the oldest above `most` connections.
void bound_strangers(GstRTSPServer* server, int most) {
  const GstOwned<GList> clients(gst_rtsp_server_client_filter(server, nullptr, nullptr));
  GstRTSPClient* oldest = nullptr;
  for (GList* at = clients.get(); at; at = at->next) {
    GstRTSPClient* const client = GST_RTSP_CLIENT(at->data);
    if (!is_stranger(client)) continue;
    if (!oldest || age(client) > age(oldest)) oldest = client;
    if (age(client) > kStrangerPatience) gst_rtsp_client_close(client);
  }
  if (oldest && int(g_list_length(clients.get())) > most) gst_rtsp_client_close(oldest);
}

constexpr char kViewer[] = "viewer";  // role of viewers with the password

GstOwned<GstRTSPAuth> new_auth(const Authority& at) {
  GstOwned<GstRTSPAuth> auth(gst_rtsp_auth_new());
  gst_rtsp_auth_set_supported_methods(auth.get(), GST_RTSP_AUTH_DIGEST);
  GstRTSPToken* const token =
      gst_rtsp_token_new(GST_RTSP_TOKEN_MEDIA_FACTORY_ROLE, G_TYPE_STRING, kViewer, nullptr);
  gst_rtsp_auth_add_digest(auth.get(), at.user.c_str(), at.password.c_str(), token);
  gst_rtsp_token_unref(token);
  return auth;
}

void require_password(GstRTSPServer* server, GstRTSPMediaFactory* factory, const Authority& at) {
  gst_rtsp_server_set_auth(server, new_auth(at).get());
  // One auth object per client: it remembers each nonce it has given as long as it lives.
  connect(server, "client-connected", [at](GstRTSPServer*, GstRTSPClient* client) {
    gst_rtsp_client_set_auth(client, new_auth(at).get());
  });
  gst_rtsp_media_factory_add_role(factory, kViewer, GST_RTSP_PERM_MEDIA_FACTORY_ACCESS,
                                  G_TYPE_BOOLEAN, TRUE, GST_RTSP_PERM_MEDIA_FACTORY_CONSTRUCT,
                                  G_TYPE_BOOLEAN, TRUE, nullptr);
}

// Sessions of UDP viewers that vanished would be served forever.
gboolean clean_up(gpointer server) {
  const GstOwned<GstRTSPSessionPool> pool(
      gst_rtsp_server_get_session_pool(GST_RTSP_SERVER(server)));
  gst_rtsp_session_pool_cleanup(pool.get());
  bound_strangers(GST_RTSP_SERVER(server), G_MAXINT);
  return G_SOURCE_CONTINUE;
}

bool is_refusal(GstRTSPMessage* answer) {
  GstRTSPStatusCode status{};
  return gst_rtsp_message_get_type(answer) == GST_RTSP_MESSAGE_RESPONSE &&
         gst_rtsp_message_parse_response(answer, &status, nullptr, nullptr) == GST_RTSP_OK &&
         status == GST_RTSP_STS_UNAUTHORIZED;
}

void let_in(GstRTSPServer* server, GstRTSPClient* client, std::chrono::seconds patience) {
  g_object_set_data(G_OBJECT(client), kSince, GSIZE_TO_POINTER(gsize(g_get_monotonic_time())));
  const int most = connection_limit(kMostClients);
  const GstOwned<GstRTSPSessionPool> pool(gst_rtsp_server_get_session_pool(server));
  gst_rtsp_session_pool_set_max_sessions(pool.get(), guint(most / 2));
  bound_strangers(server, most);
  connect(client, "new-session", [patience](GstRTSPClient*, GstRTSPSession* session) {
    gst_rtsp_session_set_timeout(session, guint(patience.count()));
  });
  // Closes a client that is refused too often: each refusal costs memory while it is connected.
  constexpr int kMostRefusals = 8;
  connect(client, "send-message",
          [refused = std::make_shared<int>(0)](GstRTSPClient* to, GstRTSPSession*,
                                               GstRTSPMessage* answer) {
            if (is_refusal(answer) && ++*refused >= kMostRefusals) gst_rtsp_client_close(to);
          });
}

class VideoServer : public VideoWriter {
 public:
  explicit VideoServer(const VideoWriterOptions& options)
      : uri_(options.to), stage_(std::make_shared<Stage>(options)) {
    const Uri uri = split_uri(options.to);
    const Authority at = authority(uri);
    host_ = at.host.empty() ? "127.0.0.1" : at.host;
    const std::size_t slash = uri.rest.find('/', 2);
    path_ = slash == std::string::npos || slash + 1 == uri.rest.size() ? "/live"
                                                                       : uri.rest.substr(slash);
    gst_rtsp_server_set_address(server_.get(), host_.c_str());
    gst_rtsp_server_set_service(server_.get(), at.port.empty() ? "8554" : at.port.c_str());
    add_stream(options, at);
    listen();
  }
  ~VideoServer() override { finish(); }

  void write(const Frame& frame) override {
    const std::lock_guard lock(stage_->mutex);
    if (!stage_->source) return;
    // Stamped on arrival: viewers want to see the present.
    count(stage_->feed.push(GST_APP_SRC_CAST(stage_->source.get()), frame, GST_CLOCK_TIME_NONE));
  }

  void finish() override {
    if (!thread_.joinable()) return;
    gst_rtsp_server_client_filter(
        server_.get(), [](auto...) { return GST_RTSP_FILTER_REMOVE; }, nullptr);
    // Invoked in the loop's thread: g_main_loop_quit() has no effect before the loop runs.
    const auto quit = [](gpointer loop) {
      g_main_loop_quit(static_cast<GMainLoop*>(loop));
      return gboolean(G_SOURCE_REMOVE);
    };
    g_main_context_invoke(context_.get(), quit, loop_.get());
    thread_.join();
    cleaner_.reset();
    door_.reset();
    server_.reset();
  }

  std::string where() const override {
    const bool v6 = host_.find(':') != std::string::npos;
    return "rtsp://" + (v6 ? "[" + host_ + "]" : host_) + ":" + std::to_string(port_) + path_;
  }

 private:
  void add_stream(const VideoWriterOptions& options, const Authority& at) {
    GstRTSPMediaFactory* const factory = gst_rtsp_media_factory_new();
    const std::string text = "( appsrc name=from is-live=true do-timestamp=true ! " +
                             encoder_text(options, VideoUse::rtsp) + " )";
    gst_rtsp_media_factory_set_launch(factory, text.c_str());
    gst_rtsp_media_factory_set_shared(factory, TRUE);
    connect(factory, "media-configure",
            [stage = stage_](GstRTSPMediaFactory*, GstRTSPMedia* media) { set_up(media, stage); });
    if (!at.user.empty()) require_password(server_.get(), factory, at);
    connect(server_.get(), "client-connected",
            [patience = options.patience](GstRTSPServer* server, GstRTSPClient* client) {
              let_in(server, client, patience);
            });
    const GstOwned<GstRTSPMountPoints> mounts(gst_rtsp_server_get_mount_points(server_.get()));
    gst_rtsp_mount_points_add_factory(mounts.get(), path_.c_str(), factory);
  }

  void listen() {
    GError* raw_error = nullptr;
    door_.reset(gst_rtsp_server_create_source(server_.get(), nullptr, &raw_error));
    const GstOwned<GError> error(raw_error);
    if (!door_) {
      throw std::runtime_error(redacted(uri_) + ": " +
                               (error ? error->message : "can't be served at"));
    }
    port_ = gst_rtsp_server_get_bound_port(server_.get());
    g_source_attach(door_.get(), context_.get());
    g_source_set_callback(cleaner_.get(), clean_up, server_.get(), nullptr);
    g_source_attach(cleaner_.get(), context_.get());
    thread_ = std::thread([this] {
      g_main_context_push_thread_default(context_.get());
      g_main_loop_run(loop_.get());
      g_main_context_pop_thread_default(context_.get());
    });
  }

  const std::string uri_;
  const Shared stage_;
  std::string host_;
  std::string path_;
  int port_ = 0;
  const GstOwned<GMainContext> context_{g_main_context_new()};
  const GstOwned<GMainLoop> loop_{g_main_loop_new(context_.get(), FALSE)};
  GstOwned<GstRTSPServer> server_{gst_rtsp_server_new()};
  GstOwned<GSource> door_;
  GstOwned<GSource> cleaner_{g_timeout_source_new_seconds(1)};  ///< removes stale sessions
  std::thread thread_;                                          // runs loop_
};

}  // namespace

std::unique_ptr<VideoWriter> open_video_server(const VideoWriterOptions& options) {
  start_gstreamer();
  return std::make_unique<VideoServer>(options);
}

}  // namespace millrace::io
