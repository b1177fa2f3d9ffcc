#include "io/queue/targets.h"

#include "io/queue/planar.h"
#include "io/queue/reader.h"

namespace millrace::io {
namespace {

using namespace std::chrono_literals;

void show(Resizer& resizer, const Frame& from, std::vector<float>& to) {
  const Frame& fit = resizer.fit(from);
  to.resize(fit.bytes());
  to_planar(fit, to.data());
}

/// Pairs frames by their number.
class InStep {
 public:
  InStep(std::unique_ptr<Source> source, const ResizerOptions& size)
      : source_(std::move(source)), resizer_(size) {}

  void tell(Frame& frame, std::int64_t number) {
    frame.target.clear();
    while (next_ <= number) {
      const ReadStatus status = source_->read(frame_, 10s);
      if (status == ReadStatus::end || status == ReadStatus::timeout) return;
      if (next_++ == number && status == ReadStatus::frame) show(resizer_, frame_, frame.target);
    }
  }
  bool rewind() {
    next_ = 0;
    return source_->rewind();
  }

 private:
  const std::unique_ptr<Source> source_;
  Resizer resizer_;
  Frame frame_;
  std::int64_t next_ = 0;
};

/// Gives the newest frame, ignoring its number.
class Newest {
 public:
  Newest(std::unique_ptr<Source> source, const ResizerOptions& size)
      : resizer_(size), reader_(std::move(source), queue_, {.paced = true}) {}

  void tell(Frame& frame) {
    while (Frame* const next = queue_.pop(0us)) {
      captured_ = next->captured;
      show(resizer_, *next, newest_);
      queue_.release(next);
    }
    const double fps = reader_.fps() > 0 ? reader_.fps() : 25;
    const bool fresh = Clock::now() - captured_ < std::chrono::duration<double>(2 / fps);
    frame.target.clear();
    if (fresh) frame.target.assign(newest_.begin(), newest_.end());
  }

 private:
  Resizer resizer_;
  std::vector<float> newest_;
  Clock::time_point captured_;
  FrameQueue queue_{1, Drop::newest};
  Reader reader_;  // last member: it writes to queue_
};

}  // namespace

Teller stream_teller(std::unique_ptr<Source> source, const ResizerOptions& size, bool live) {
  if (live) {
    const auto newest = std::make_shared<Newest>(std::move(source), size);
    return {.tell = [newest](Frame& frame, auto, auto) { newest->tell(frame); }};
  }
  const auto in_step = std::make_shared<InStep>(std::move(source), size);
  return {.tell = [in_step](Frame& frame, auto number, auto) { in_step->tell(frame, number); },
          .rewind = [in_step] { return in_step->rewind(); }};
}

}  // namespace millrace::io
