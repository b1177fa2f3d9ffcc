// A plug-in whose sink throws at the 21st prediction, output.sinks = ["breaks:error"] or
// ["breaks:other"], and whose source's frames are not as asked, source.uri = "torn:channels" or
// "torn:pixels".
#include <stdexcept>

#include "tools/app/plugins/plugin.h"
#include "tools/app/run.h"

namespace {

class Breaks final : public millrace::Sink {
 public:
  explicit Breaks(const std::string& how) : other_(how == "other") {}
  void see(const millrace::Prediction& prediction) override {
    if (prediction.index < 20) return;
    if (other_) throw 7;
    throw std::runtime_error("out of paper");
  }

 private:
  const bool other_;
};

class Torn final : public millrace::io::Source {
 public:
  explicit Torn(bool channels) : channels_(channels) {}
  millrace::io::SourceInfo info() const override { return {.width = 64, .height = 48, .fps = 25}; }
  millrace::io::ReadStatus read(millrace::io::Frame& out, std::chrono::milliseconds) override {
    out.reshape(64, 48, channels_ ? 1 : 3);
    if (!channels_) out.pixels.resize(64 * 48);
    return millrace::io::ReadStatus::frame;
  }
  bool rewind() override { return false; }

 private:
  const bool channels_;
};

void fill(millrace::Plugin& plugin) {
  plugin.sources.push_back(
      {"torn", "torn:WHERE", "frames that are not as asked", "", false,
       [](const millrace::io::SourceOptions& options) -> std::unique_ptr<millrace::io::Source> {
         return std::make_unique<Torn>(options.uri == "torn:channels");
       }});
  plugin.sinks.push_back(
      {"breaks", "throws", [](const std::string& how) -> std::unique_ptr<millrace::Sink> {
         return std::make_unique<Breaks>(how);
       }});
}

}  // namespace

MILLRACE_PLUGIN(fill)
