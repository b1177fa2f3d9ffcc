#include "io/source/told_source.h"

#include <algorithm>
#include <utility>

#include "io/source/source.h"

namespace millrace::io {
namespace {

class ToldSource : public Source {
 public:
  ToldSource(std::unique_ptr<Source> source, Teller teller)
      : source_(std::move(source)), teller_(std::move(teller)) {}

  SourceInfo info() const override {
    SourceInfo info = source_->info();
    info.classes = std::max(info.classes, teller_.classes);
    return info;
  }
  ReadStatus read(Frame& out, std::chrono::milliseconds timeout) override {
    const ReadStatus status = source_->read(out, timeout);
    if (status == ReadStatus::corrupt) ++number_;
    if (status == ReadStatus::frame) {
      if (std::exchange(first_, false)) start_ = out.pts;
      teller_.tell(out, number_++, out.pts - start_);
    }
    return status;
  }
  bool rewind() override {
    number_ = 0;
    first_ = true;
    return source_->rewind() && teller_.rewind();
  }
  std::shared_ptr<const StreamHealth> health() const override { return source_->health(); }

 private:
  const std::unique_ptr<Source> source_;
  const Teller teller_;
  std::int64_t number_ = 0;  // of the next frame in this pass
  bool first_ = true;
  std::chrono::nanoseconds start_{0};  // stamp of its first frame
};

}  // namespace

std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source, Teller teller) {
  return std::make_unique<ToldSource>(std::move(source), std::move(teller));
}

}  // namespace millrace::io
