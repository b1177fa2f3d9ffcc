// What a recording's header says of its pictures, by libavformat, which decodes nothing here.
#include <cstdio>
#include <memory>

extern "C" {
#include <libavformat/avformat.h>
}

#include "io/source/picture_headers.h"

namespace millrace::io {
namespace {

struct Release {
  void operator()(std::FILE* file) const { std::fclose(file); }
  void operator()(AVIOContext* bytes) const {
    av_freep(&bytes->buffer);
    avio_context_free(&bytes);
  }
  void operator()(AVFormatContext* recording) const { avformat_close_input(&recording); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

int read_bytes(void* file, std::uint8_t* to, int count) {
  const std::size_t got = std::fread(to, 1, std::size_t(count), static_cast<std::FILE*>(file));
  return got > 0 ? int(got) : AVERROR_EOF;
}

std::int64_t seek_to(void* opaque, std::int64_t at, int whence) {
  auto* const file = static_cast<std::FILE*>(opaque);
  if (whence != AVSEEK_SIZE)
    return fseeko(file, at, whence & ~AVSEEK_FORCE) == 0 ? ftello(file) : -1;
  const off_t here = ftello(file);
  const std::int64_t size = fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : -1;
  return fseeko(file, here, SEEK_SET) == 0 ? size : -1;
}

}  // namespace

std::optional<PictureSize> declared_size(const std::string& path) {
  if (const std::optional<PictureSize> picture = picture_size(path)) return picture;
  const Owned<std::FILE> file(std::fopen(path.c_str(), "rbe"));
  if (!file) return std::nullopt;
  constexpr int kBuffer = 1 << 15;
  const Owned<AVIOContext> bytes(avio_alloc_context(static_cast<std::uint8_t*>(av_malloc(kBuffer)),
                                                    kBuffer, 0, file.get(), read_bytes, nullptr,
                                                    seek_to));
  AVFormatContext* opened = avformat_alloc_context();
  opened->pb = bytes.get();
  av_log_set_callback([](void*, int, const char*, va_list) {});  // errors are ours to word
  // Lists and playlists name other files; none of them is opened.
  AVDictionary* options = nullptr;
  av_dict_set(&options, "protocol_whitelist", "none", 0);
  const int failed = avformat_open_input(&opened, path.c_str(), nullptr, &options);
  av_dict_free(&options);
  if (failed < 0) return std::nullopt;  // it has freed `opened`
  const Owned<AVFormatContext> recording(opened);
  for (unsigned n = 0; n < recording->nb_streams; ++n) {
    const AVStream& stream = *recording->streams[n];
    const AVCodecParameters& coded = *stream.codecpar;
    const bool cover = stream.disposition & AV_DISPOSITION_ATTACHED_PIC;
    if (coded.codec_type == AVMEDIA_TYPE_VIDEO && !cover && coded.width > 0 && coded.height > 0)
      return PictureSize{coded.width, coded.height};
  }
  return std::nullopt;
}

}  // namespace millrace::io
