#include "io/source/told_source.h"

#include <algorithm>
#include <utility>

#include "io/source/stream_health.h"

namespace millrace::io {
namespace {

class ToldSource : public Source {
 public:
  ToldSource(std::unique_ptr<Source> source, std::unique_ptr<Teller> teller)
      : source_(std::move(source)), teller_(std::move(teller)) {}

  SourceInfo info() const override {
    SourceInfo info = source_->info();
    info.classes = std::max(info.classes, teller_->classes());
    return info;
  }
  ReadStatus read(Frame& out, std::chrono::milliseconds timeout) override {
    const ReadStatus status = source_->read(out, timeout);
    if (status == ReadStatus::corrupt) ++number_;
    if (status == ReadStatus::frame) {
      if (std::exchange(first_, false)) start_ = out.pts;
      teller_->tell(out, number_++, out.pts - start_);
    }
    return status;
  }
  bool rewind() override {
    number_ = 0;
    first_ = true;
    return source_->rewind() && teller_->rewind();
  }
  std::shared_ptr<const StreamHealth> health() const override { return source_->health(); }

 private:
  const std::unique_ptr<Source> source_;
  const std::unique_ptr<Teller> teller_;
  std::int64_t number_ = 0;  // of the next frame in this pass
  bool first_ = true;
  std::chrono::nanoseconds start_{0};  // its first frame's stamp
};

using Label = std::function<int(std::int64_t, std::chrono::nanoseconds)>;

class LabelTeller : public Teller {
 public:
  LabelTeller(Label label, int classes) : label_(std::move(label)), classes_(classes) {}
  void tell(Frame& frame, std::int64_t number, std::chrono::nanoseconds since) override {
    frame.label = label_(number, since);
  }
  int classes() const override { return classes_; }

 private:
  const Label label_;
  const int classes_;
};

}  // namespace

std::unique_ptr<Teller> label_teller(Label label, int classes) {
  return std::make_unique<LabelTeller>(std::move(label), classes);
}

std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source,
                                    std::unique_ptr<Teller> teller) {
  return std::make_unique<ToldSource>(std::move(source), std::move(teller));
}

}  // namespace millrace::io
