#include "tools/app/feeds/shared_feed.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

namespace millrace::app {

using engine::Exchange;

SampleMessage::SampleMessage(engine::Sample& sample) {
  const auto [input, target] = sample.memory();
  bytes_.resize(sizeof(engine::SampleInfo) + input.size() + target.size());
}

void SampleMessage::pack(engine::Sample& sample) {
  std::memcpy(bytes_.data(), &sample.info, sizeof sample.info);
  std::byte* to = bytes_.data() + sizeof sample.info;
  for (const std::span<std::byte> part : sample.memory()) to = std::ranges::copy(part, to).out;
}

void SampleMessage::unpack(engine::Sample& sample) {
  std::memcpy(static_cast<void*>(&sample.info), bytes_.data(), sizeof sample.info);
  const std::byte* from = bytes_.data() + sizeof sample.info;
  for (const std::span<std::byte> part : sample.memory()) {
    std::copy_n(from, part.size(), part.begin());
    from += part.size();
  }
}

SharedFeed::SharedFeed(engine::Feed& own, Exchange& group, engine::Trainer& trainer)
    : own_(own), group_(group), message_(trainer.in_slot(0)) {
  const std::lock_guard lock(group.mutex());
  for (int rank = 1; rank < group.ranks(); ++rank)
    ports_.push_back(group.open_to(rank, Exchange::kFeedTag, {message_.bytes()}));
}

void SharedFeed::take(engine::Sample& sample) {
  own_.take(sample);
  const auto all_over = [&] {
    const std::lock_guard lock(group_.mutex());
    for (const int port : ports_) {
      if (!group_.over(port)) return false;
    }
    return true;
  };
  // The others take each sample at once; if one is gone, the pipeline finds out.
  for (int looks = 0; !all_over() && looks < 200'000; ++looks)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  message_.pack(sample);
  const std::lock_guard lock(group_.mutex());
  for (const int port : ports_) group_.start(port);
  ++taken_;
}

void SharedFeed::end() {
  const std::lock_guard lock(group_.mutex());
  for (int rank = 1; rank < group_.ranks(); ++rank)
    group_.post(rank, Exchange::About::run, std::to_string(taken_));
}

ReceivedFeed::ReceivedFeed(Exchange& group, engine::Trainer& trainer)
    : group_(group), message_(trainer.in_slot(0)) {
  const std::lock_guard lock(group.mutex());
  port_ = group.open_from(0, Exchange::kFeedTag, {message_.bytes()});
  group.start(port_);
}

engine::Feed::Status ReceivedFeed::poll(std::chrono::microseconds patience) {
  {
    const std::lock_guard lock(group_.mutex());
    if (const auto letter = group_.letter(Exchange::About::run)) end_ = std::stoll(letter->text);
    if (taken_ == end_) return Status::end;
    if (group_.over(port_)) return Status::ready;
  }
  if (patience.count() > 0) std::this_thread::sleep_for(patience);
  return Status::wait;
}

void ReceivedFeed::take(engine::Sample& sample) {
  message_.unpack(sample);
  ++taken_;
  const std::lock_guard lock(group_.mutex());
  group_.start(port_);
}

}  // namespace millrace::app
