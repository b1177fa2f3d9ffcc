#include "io/source/gst_trouble.h"

#include <algorithm>

#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

bool means_no_decoder(const GError& error) {
  if (error.domain == GST_CORE_ERROR) return error.code == GST_CORE_ERROR_MISSING_PLUGIN;
  return error.domain == GST_STREAM_ERROR && (error.code == GST_STREAM_ERROR_CODEC_NOT_FOUND ||
                                              error.code == GST_STREAM_ERROR_TYPE_NOT_FOUND);
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \n.") + 1);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The first line of a debug text is a place in GStreamer's source; the rest may be of use.
std::string detail_of(const gchar* debug) {
  const std::string text = debug ? debug : "";
  const std::size_t line = text.find('\n');
  return line == std::string::npos ? "" : trimmed(text.substr(line + 1));
}

}  // namespace

bool GstTrouble::look() {
  while (const GstOwned<GstMessage> message{gst_bus_pop(bus_.get())}) {
    const GstStructure* const fields = gst_message_get_structure(message.get());
    if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_ERROR && cause_.empty()) {
      note_error(message.get());
    } else if (fields && gst_structure_has_name(fields, "missing-plugin")) {
      const gchar* const name = gst_structure_get_string(fields, "name");
      if (name) missing_ = name;
    }
  }
  return !cause_.empty();
}

void GstTrouble::note_error(GstMessage* message) {
  GError* raw_error = nullptr;
  gchar* raw_debug = nullptr;
  gst_message_parse_error(message, &raw_error, &raw_debug);
  const GstOwned<GError> error(raw_error);
  const GstOwned<gchar> debug(raw_debug);
  cause_ = trimmed(error->message);
  const std::string detail = detail_of(debug.get());
  if (detail.find("reason not-linked") != std::string::npos) {
    cause_ = "there is no video in it";
  } else if (!detail.empty() && detail != cause_) {
    cause_ += " (" + detail + ")";
  }
  no_decoder_ = means_no_decoder(*error);
}

void GstTrouble::raise(const SourceOptions& options) const {
  if (!no_decoder_) throw source_error(options, redacted(cause_));
  const std::string cause = missing_.empty() ? cause_ : "GStreamer has no " + missing_;
  throw NoDecoder(source_error(options, redacted(cause)).what());
}

}  // namespace millrace::io
