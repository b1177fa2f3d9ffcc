// A plug-in whose sink throws at the 21st prediction: output.sinks = ["breaks:error"] or
// ["breaks:other"].
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

void fill(millrace::Plugin& plugin) {
  plugin.sinks.push_back(
      {"breaks", "throws", [](const std::string& how) -> std::unique_ptr<millrace::Sink> {
         return std::make_unique<Breaks>(how);
       }});
}

}  // namespace

MILLRACE_PLUGIN(fill)
