#include "capture/recorder_cpu.h"

namespace millrace::capture {
namespace {

class CpuRecording final : public Recording {
 public:
  explicit CpuRecording(std::function<void()> body) : body_(std::move(body)) {}
  void replay() override { body_(); }

 private:
  std::function<void()> body_;
};

class CpuRecorder final : public Recorder {
 public:
  std::unique_ptr<Recording> record(std::function<void()> body) override {
    return std::make_unique<CpuRecording>(std::move(body));
  }
};

}  // namespace

std::unique_ptr<Recorder> make_cpu_recorder() {
  return std::make_unique<CpuRecorder>();
}

}  // namespace millrace::capture
