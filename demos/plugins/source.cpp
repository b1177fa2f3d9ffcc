// A source of your own: source.uri = "bars:8", moving grey bars, eight pixels wide.
#include <millrace/plugin.h>

#include <cstdlib>

namespace {

using namespace millrace;

class Bars final : public io::Source {
 public:
  Bars(const io::SourceOptions& options, int wide) : options_(options), wide_(wide) {}

  io::SourceInfo info() const override {
    return {.kind = "bars", .width = options_.width, .height = options_.height, .fps = 25};
  }
  io::ReadStatus read(io::Frame& out, std::chrono::milliseconds) override {
    out.width = options_.width;
    out.height = options_.height;
    out.channels = options_.channels;
    out.pts = std::chrono::milliseconds(40 * next_);
    out.pixels.resize(out.bytes());
    const std::size_t row = std::size_t(out.width) * std::size_t(out.channels);
    for (std::size_t i = 0; i < out.bytes(); ++i)
      out.pixels[i] = (int(i % row) / out.channels + next_) / wide_ % 2 ? 200 : 50;
    ++next_;
    return io::ReadStatus::frame;
  }
  bool rewind() override {
    next_ = 0;
    return true;
  }

 private:
  const io::SourceOptions options_;
  const int wide_;
  int next_ = 0;
};

void fill(Plugin& plugin) {
  plugin.sources.push_back(
      {"bars", "bars:WIDTH", "moving grey bars", "", false, [](const io::SourceOptions& options) {
         const int wide = std::atoi(options.uri.c_str() + options.uri.find(':') + 1);
         if (wide < 1)
           throw io::SourceError(options.uri + ": bars must be at least one pixel wide");
         return std::unique_ptr<io::Source>(std::make_unique<Bars>(options, wide));
       }});
}

}  // namespace

MILLRACE_PLUGIN(fill)
