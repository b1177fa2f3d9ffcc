#include "tools/app/feeds/shared_feed.h"

#include <cstring>
#include <string>
#include <thread>

namespace millrace::app {
namespace {

using engine::Exchange;

constexpr int kTag = Exchange::kTags / 2;  ///< above those of sums

}  // namespace

SampleMessage::SampleMessage(engine::Trainer& trainer) : trainer_(trainer) {
  const stages::ImageShape& sample = trainer.sample();
  const auto inputs = std::size_t(sample.channels * sample.height * sample.width);
  const bool own_target =
      trainer.target_bytes(0) != trainer.input_bytes(0) || trainer.target(0) != trainer.input(0);
  input_bytes_ = trainer.input_bytes(0) ? inputs : inputs * sizeof(float);
  target_bytes_ = !own_target               ? 0
                  : trainer.target_bytes(0) ? trainer.target_elements()
                                            : trainer.target_elements() * sizeof(float);
  bytes_.resize(sizeof(engine::SampleInfo) + input_bytes_ + target_bytes_);
}

template <class Copy>
void SampleMessage::each(int slot, const Copy& copy) {
  const auto place = [](std::uint8_t* bytes, float* floats) {
    return bytes ? reinterpret_cast<std::byte*>(bytes) : reinterpret_cast<std::byte*>(floats);
  };
  std::byte* at = bytes_.data() + sizeof(engine::SampleInfo);
  copy(at, place(trainer_.input_bytes(slot), trainer_.input(slot)), input_bytes_);
  if (target_bytes_ > 0)
    copy(at + input_bytes_, place(trainer_.target_bytes(slot), trainer_.target(slot)),
         target_bytes_);
}

void SampleMessage::pack(int slot, const engine::SampleInfo& info) {
  std::memcpy(bytes_.data(), &info, sizeof info);
  each(slot, [](std::byte* message, const std::byte* sample, std::size_t bytes) {
    std::memcpy(message, sample, bytes);
  });
}

void SampleMessage::unpack(int slot, engine::SampleInfo& info) {
  std::memcpy(static_cast<void*>(&info), bytes_.data(), sizeof info);
  each(slot, [](const std::byte* message, std::byte* sample, std::size_t bytes) {
    std::memcpy(sample, message, bytes);
  });
}

SharedFeed::SharedFeed(engine::Feed& own, Exchange& group, engine::Trainer& trainer)
    : own_(own), group_(group), message_(trainer) {
  const std::lock_guard lock(group.mutex());
  for (int rank = 1; rank < group.ranks(); ++rank)
    ports_.push_back(group.open_to(rank, kTag, {message_.bytes()}));
}

void SharedFeed::take(int slot, engine::SampleInfo& info) {
  own_.take(slot, info);
  const auto all_over = [&] {
    const std::lock_guard lock(group_.mutex());
    for (const int port : ports_) {
      if (!group_.over(port)) return false;
    }
    return true;
  };
  // The others take each sample at once, or have gone: then their pipeline says so.
  for (int looks = 0; !all_over() && looks < 200'000; ++looks)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  message_.pack(slot, info);
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
    : group_(group), message_(trainer) {
  const std::lock_guard lock(group.mutex());
  port_ = group.open_from(0, kTag, {message_.bytes()});
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

void ReceivedFeed::take(int slot, engine::SampleInfo& info) {
  message_.unpack(slot, info);
  ++taken_;
  const std::lock_guard lock(group_.mutex());
  group_.start(port_);
}

}  // namespace millrace::app
