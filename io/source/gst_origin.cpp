// Confines a stream to its origin: a playlist of a camera, or a file that names others, could make
// this machine ask for any address and open its own files.
#define GST_USE_UNSTABLE_API  // tracer hooks, as GStreamer's own plug-ins use them
#include <gst/gst.h>
#include <gst/gsttracer.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <vector>

#include "io/source/gst_pipeline.h"

#ifdef GST_DISABLE_GST_TRACER_HOOKS
#error "this GStreamer has no tracer hooks, without which playlists would be followed anywhere"
#endif

namespace millrace::io {
namespace {

/// "http://host:80"; for other schemes all of `uri`.
std::string origin_of(const std::string& uri) {
  gchar *scheme = nullptr, *host = nullptr;
  gint port = -1;
  const bool split = g_uri_split_network(
      uri.c_str(), GUriFlags(G_URI_FLAGS_PARSE_RELAXED | G_URI_FLAGS_SCHEME_NORMALIZE), &scheme,
      &host, &port, nullptr);
  const GstOwned<gchar> own_scheme(scheme), own_host(host);
  if (!split || !std::string_view(scheme).starts_with("http")) return uri;
  if (port < 0) port = std::string_view(scheme) == "https" ? 443 : 80;
  const GstOwned<gchar> lower(g_ascii_strdown(host, -1));
  return std::string(scheme) + "://" + lower.get() + ":" + std::to_string(port);
}

struct Kept {
  Kept(GstElement* in, const std::string& at) : origin(origin_of(at)) {
    g_weak_ref_init(&pipeline, in);
  }
  Kept(const Kept&) = delete;
  ~Kept() { g_weak_ref_clear(&pipeline); }
  GstOwned<GstElement> get() {
    return GstOwned<GstElement>(GST_ELEMENT(g_weak_ref_get(&pipeline)));
  }

  GWeakRef pipeline;
  const std::string origin;
};

std::mutex kept_mutex;
std::list<Kept> kept_pipelines;

/// Whether `source` downloads for a playlist's demuxer: it then has no parent and is linked to a
/// pad without an element.
bool is_download(GstElement* source) {
  const GstOwned<GstPad> pad(gst_element_get_static_pad(source, "src"));
  const GstOwned<GstPad> peer(pad ? gst_pad_get_peer(pad.get()) : nullptr);
  return peer && !GST_OBJECT_PARENT(source) && !GST_OBJECT_PARENT(peer.get());
}

struct Follower {
  GstOwned<GstElement> pipeline;
  std::string origin;
};

std::vector<Follower> readers_of(GstElement* source) {
  std::vector<Follower> all;
  const std::lock_guard lock(kept_mutex);
  const bool download = !kept_pipelines.empty() && is_download(source);
  for (Kept& one : kept_pipelines) {
    GstOwned<GstElement> pipeline = one.get();
    if (pipeline &&
        (download ? reads_playlist(pipeline.get())
                  : gst_object_has_as_ancestor(GST_OBJECT(source), GST_OBJECT(pipeline.get()))))
      all.push_back({std::move(pipeline), one.origin});
  }
  return all;
}

/// Called before any element of the process changes its state.
void on_change(GObject*, GstClockTime, GstElement* element, GstStateChange change) {
  if (change != GST_STATE_CHANGE_READY_TO_PAUSED || !GST_IS_URI_HANDLER(element)) return;
  GstURIHandler* const handler = GST_URI_HANDLER(element);
  if (gst_uri_handler_get_uri_type(handler) != GST_URI_SRC) return;
  const std::vector<Follower> readers = readers_of(element);
  if (readers.empty()) return;
  const GstOwned<gchar> text(gst_uri_handler_get_uri(handler));
  const std::string uri = text ? text.get() : "", scheme = uri.substr(0, uri.find(':'));
  if (uri.empty() || scheme == "data") return;  // carries its data itself
  if (std::ranges::count(readers, origin_of(uri), &Follower::origin) == 0) {
    for (const Follower& reader : readers)
      GST_ELEMENT_ERROR(reader.pipeline.get(), RESOURCE, NOT_FOUND,
                        ("it names %s, which is somewhere else and not followed", uri.c_str()),
                        (nullptr));
    // The change itself can't be stopped.
    const std::string nothing = scheme == "file" ? "file:///dev/null" : scheme + "://127.0.0.1:0/";
    gst_uri_handler_set_uri(handler, nothing.c_str(), nullptr);
  }
  // The first request may be redirected, as the user may know; later ones, to addresses that the
  // answer names, may not.
  const GstOwned<GstObject> parent(gst_object_get_parent(GST_OBJECT(element)));
  const bool first = parent && std::string_view(GST_OBJECT_NAME(parent.get())) == kFrom;
  if (!first && has_property(element, "automatic-redirect"))
    g_object_set(element, "automatic-redirect", FALSE, nullptr);
}

}  // namespace

void watch_sources() {
  const GType type =
      g_type_register_static_simple(GST_TYPE_TRACER, "MillraceOrigins", sizeof(GstTracerClass),
                                    nullptr, sizeof(GstTracer), nullptr, GTypeFlags(0));
  gst_tracing_register_hook(GST_TRACER(g_object_new(type, nullptr)), "element-change-state-pre",
                            G_CALLBACK(on_change));
}

void keep_to_origin(GstElement* pipeline, const std::string& uri) {
  const std::lock_guard lock(kept_mutex);
  kept_pipelines.remove_if([](Kept& one) { return !one.get(); });
  kept_pipelines.emplace_back(pipeline, uri);
}

}  // namespace millrace::io
