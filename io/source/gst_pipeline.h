// Builds the GStreamer pipeline of a URI (decoder, converter, appsink) and watches it.
#pragma once

#include <gst/app/gstappsink.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io/source/gst_handles.h"
#include "io/source/source.h"

namespace millrace::io {

/// A pipeline in state NULL. `sink` and `converter` live as long as `pipeline`.
struct GstParts {
  GstRunning pipeline;
  GstAppSink* sink = nullptr;
  GstElement* converter = nullptr;  ///< null if the user's own text ends in an appsink
};

/// Name of the element that reads the URI or the device.
constexpr char kFrom[] = "millrace_from";

/// Initializes GStreamer once per process. Any thread. Throws SourceError.
void start_gstreamer();

/// `sink` delivers unscaled RGB or grey frames as fast as they are taken. Throws SourceError.
GstParts build_pipeline(const SourceOptions& options);

/// The source that open_gstreamer() gives; `live`: whatever the pipeline says.
std::unique_ptr<Source> open_pipeline(const SourceOptions& options, bool live, bool wait);

/// Watches the input of all decoders of `pipeline`, not started yet. If it announces more than
/// `most` pixels or no size at all, or a picture's bytes don't end, posts an error and drops the
/// data.
void bound_pictures(GstElement* pipeline, std::int64_t most);

/// Enables keep_to_origin(). Once per process.
void watch_sources();
/// From now on `pipeline`, and its downloads, read only from the scheme, host and port of the http
/// `uri`, or from another `uri` itself; any other address that its data names becomes an error.
void keep_to_origin(GstElement* pipeline, const std::string& uri);

/// Whether `pipeline` reads a playlist, as of HLS or DASH.
bool reads_playlist(GstElement* pipeline);

/// Makes `converter` read colours whose matrix its input does not name as FFmpeg does: BT.601, grey
/// in full range. GStreamer would guess by size, and take grey as green and magenta.
void settle_colours(GstElement* converter);

/// Called by decodebin for each stream that it finds, with its format: decodes only pictures.
gboolean wants_decoding(GstElement* decodebin, GstPad*, GstCaps* format, gpointer);

using SharedTime = std::shared_ptr<std::atomic<GstClockTime>>;

/// The end of the last buffer of any track from a demuxer of `pipeline`, in state NULL; 0 before
/// the first. A file is whole if its sound lasts to the end, even when pictures end early.
SharedTime watch_extent(GstElement* pipeline);

/// The first error on a pipeline's bus, in one line. Thread-bound.
class GstTrouble {
 public:
  GstTrouble() = default;
  explicit GstTrouble(GstElement* pipeline) : bus_(gst_element_get_bus(pipeline)) {}

  /// Empties the bus; true once there was an error.
  bool look();
  bool found() const { return !cause_.empty(); }
  [[noreturn]] void raise(const SourceOptions& options) const;

 private:
  void note_error(GstMessage* message);

  GstOwned<GstBus> bus_;
  std::string cause_;
  std::string missing_;  // the element that isn't installed
};

}  // namespace millrace::io
