// Finds JPEG pictures among the headers of a web camera's parts by their bytes, since GStreamer's
// demuxer believes each part's type and needs a boundary before the first.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "io/source/gst_pipeline.h"

namespace millrace::io {
namespace {

constexpr guint kLeastHead = 2 << 10,
                kMostHead = 64 << 10;      // bytes; a viewer may join during a picture
constexpr std::size_t kPartHeaders = 512;  // bytes before a picture

bool ends_in_headers(std::string_view before) {
  if (!before.ends_with("\n\r\n") && !before.ends_with("\n\n")) return false;
  std::string text(before.substr(before.size() - std::min(before.size(), kPartHeaders)));
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text.find("content-") != text.npos || text.find("--") != text.npos;
}

void find_pictures(GstTypeFind* head, gpointer) {
  for (guint size = kLeastHead; size <= kMostHead; size *= 2) {
    const guint8* const bytes = gst_type_find_peek(head, 0, size);
    if (!bytes) return;
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    for (std::size_t at = 0; (at = text.find("\xff\xd8\xff", at)) != text.npos; ++at) {
      if (!ends_in_headers(text.substr(0, at))) continue;
      gst_type_find_suggest_simple(head, GST_TYPE_FIND_MAXIMUM, "image/jpeg", nullptr, nullptr);
      return;
    }
  }
}

}  // namespace

void find_parts() {
  gst_type_find_register(nullptr, "millrace_parts", GST_RANK_PRIMARY + 1, find_pictures, nullptr,
                         nullptr, nullptr, nullptr);
}

}  // namespace millrace::io
