// A sink of your own: output.sinks = ["csv:loss.csv"], one line per prediction.
#include <millrace/plugin.h>
#include <millrace/run.h>

#include <cstdio>
#include <stdexcept>

namespace {

class Csv final : public millrace::Sink {
 public:
  explicit Csv(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "w")) {
    if (!file_) throw std::invalid_argument(path + ": can't be written");
    std::fputs("frame,loss,latency_ms\n", file_);
  }
  ~Csv() override {
    if (file_) std::fclose(file_);
  }
  // Lines are buffered, so the file is written every few hundred predictions.
  void see(const millrace::Prediction& p) override {
    std::fprintf(file_, "%lld,%.6g,%.3f\n", static_cast<long long>(p.frame), p.loss, p.latency_ms);
  }
  void finish() override {
    const int failed = std::fclose(file_);
    file_ = nullptr;
    if (failed) throw std::runtime_error(path_ + ": can't be written");
  }

 private:
  const std::string path_;
  std::FILE* file_;
};

void fill(millrace::Plugin& plugin) {
  plugin.sinks.push_back({"csv", "one line per prediction",
                          [](const std::string& path) -> std::unique_ptr<millrace::Sink> {
                            return std::make_unique<Csv>(path);
                          }});
}

}  // namespace

MILLRACE_PLUGIN(fill)
