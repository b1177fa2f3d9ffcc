#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/sum_group.h"
#include "engine/trainer/trainer.h"

namespace millrace::app {

/// One copy's feed. Each copy takes its n-th sample only when all have one, so that their n-th
/// updates can be summed. The other copies report that they are ready or at their end; the first
/// answers go or end. Frames stay on their rank. Threads as engine::Feed; poll() throws RankLost.
class LockstepFeed final : public engine::Feed {
 public:
  /// `own`: this copy's source. `copies`: the first ranks of all copies. `stopping`, on the first
  /// one: whether the run ends without waiting for copies that have no sample. All outlive this.
  LockstepFeed(engine::Feed& own, engine::SumGroup& copies,
               const std::atomic<bool>* stopping = nullptr)
      : own_(own), copies_(copies), exchange_(copies.exchange()), stopping_(stopping) {
    const std::lock_guard lock(exchange_.mutex());
    peers_.resize(leads() ? std::size_t(exchange_.ranks() - 1) : 1);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const int rank = leads() ? int(i) + 1 : 0;
      peers_[i].out =
          exchange_.open_to(rank, engine::Exchange::kFeedTag, {bytes_of(peers_[i].says)});
      peers_[i].in =
          exchange_.open_from(rank, engine::Exchange::kFeedTag, {bytes_of(peers_[i].said)});
      listen(peers_[i]);
    }
  }
  /// Closes the exchange's ports, including those of the sums.
  ~LockstepFeed() override {
    const std::lock_guard lock(exchange_.mutex());
    exchange_.close_ports();
  }
  Status poll(std::chrono::microseconds patience) override {
    if (over_) return Status::end;
    if (leads() || !said_) {
      const Status own = own_.poll(patience);
      if (leads() && own != Status::ready) {
        const bool ends = own == Status::end || all_ready() == Status::end;
        return ends ? Status::end : Status::wait;
      }
      if (!leads() && own != Status::wait) {
        say(peers_.front(), own == Status::ready ? Word::ready : Word::end);
        said_ = true;
      }
    }
    Status all = all_ready();
    if (all == Status::wait && stopping_ && stopping_->load(std::memory_order_relaxed))
      all = Status::end;
    over_ = all == Status::end;
    if (all == Status::wait && patience.count() > 0) std::this_thread::sleep_for(patience);
    return all;
  }
  void take(engine::Sample& sample) override {
    if (leads())
      for (Peer& peer : peers_) say(peer, Word::ready);
    own_.take(sample);
    said_ = false;
    const std::lock_guard lock(exchange_.mutex());
    for (Peer& peer : peers_) listen(peer);
  }
  /// Ends all copies. Called on the first one, by the worker that takes samples.
  void end() {
    for (Peer& peer : peers_) say(peer, Word::end);
  }

 private:
  /// A copy's report on its next sample, and the first copy's answer.
  enum class Word : std::int64_t { end, ready };
  struct Peer {
    Word said = Word::end;
    int in = -1, out = -1;
    Word says = Word::end;
    bool heard = false;  ///< since the last listen()
  };
  static std::span<std::byte> bytes_of(Word& word) {
    return std::as_writable_bytes(std::span(&word, 1));
  }
  bool leads() const { return exchange_.rank() == 0; }
  void listen(Peer& peer) {
    peer.heard = false;
    exchange_.start(peer.in);
  }
  bool hears(Peer& peer) {
    peer.heard = peer.heard || exchange_.over(peer.in);
    return peer.heard;
  }
  void say(Peer& peer, Word word) {
    std::unique_lock lock(exchange_.mutex());
    while (!exchange_.over(peer.out)) {  // soon: the last word was answered
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    peer.says = word;
    exchange_.start(peer.out);
  }
  Status all_ready() {
    const std::lock_guard lock(exchange_.mutex());
    copies_.require_alive();
    bool all = true;
    for (Peer& peer : peers_)
      if (!hears(peer))
        all = false;
      else if (peer.said == Word::end)
        return Status::end;
    return all ? Status::ready : Status::wait;
  }

  engine::Feed& own_;
  engine::SumGroup& copies_;
  engine::Exchange& exchange_;
  const std::atomic<bool>* const stopping_;
  std::vector<Peer> peers_;  ///< the first copy: all others; another copy: the first
  bool said_ = false;        ///< other copies: the next sample is reported
  bool over_ = false;
};

/// Bytes of a sample as a message: info, input, and the target if it isn't the input.
inline std::size_t message_size(engine::Sample& sample) {
  return sizeof sample.info + sample.bytes();
}

/// On rank 0 of `group`: feeds this rank's pipeline and the other ranks'. Threads as engine::Feed.
class SharedFeed final : public engine::Feed {
 public:
  /// All arguments outlive this. `trainer` takes samples from it.
  SharedFeed(engine::Feed& own, engine::Exchange& group, engine::Trainer& trainer)
      : own_(own), group_(group), message_(message_size(trainer.in_slot(0))) {
    const std::lock_guard lock(group.mutex());
    for (int rank = 1; rank < group.ranks(); ++rank)
      ports_.push_back(group.open_to(rank, engine::Exchange::kFeedTag, {message_}));
  }
  Status poll(std::chrono::microseconds patience) override {
    constexpr std::chrono::microseconds kSoon{20};  // the other ranks take each sample at once
    if (sent()) return own_.poll(patience);
    std::this_thread::sleep_for(std::min(patience, kSoon));
    return Status::wait;
  }
  void take(engine::Sample& sample) override {
    own_.take(sample);
    std::memcpy(message_.data(), &sample.info, sizeof sample.info);
    sample.write_to(message_.data() + sizeof sample.info);
    const std::lock_guard lock(group_.mutex());
    for (const int port : ports_) group_.start(port);
    ++taken_;
  }
  void end() {
    const std::lock_guard lock(group_.mutex());
    for (int rank = 1; rank < group_.ranks(); ++rank)
      group_.post(rank, engine::Exchange::About::run, std::to_string(taken_));
  }

 private:
  /// Whether all ranks have the last sample, so that the message may be used again.
  bool sent() {
    const std::lock_guard lock(group_.mutex());
    return std::ranges::all_of(ports_, [this](int port) { return group_.over(port); });
  }

  engine::Feed& own_;
  engine::Exchange& group_;
  std::vector<std::byte> message_;
  std::vector<int> ports_;
  std::int64_t taken_ = 0;
};

/// The feed of the other ranks of `group`.
class ReceivedFeed final : public engine::Feed {
 public:
  ReceivedFeed(engine::Exchange& group, engine::Trainer& trainer)
      : group_(group), message_(message_size(trainer.in_slot(0))) {
    const std::lock_guard lock(group.mutex());
    port_ = group.open_from(0, engine::Exchange::kFeedTag, {message_});
    group.start(port_);
  }
  Status poll(std::chrono::microseconds patience) override {
    {
      const std::lock_guard lock(group_.mutex());
      if (const auto letter = group_.letter(engine::Exchange::About::run))
        end_ = std::stoll(letter->text);
      if (taken_ == end_) return Status::end;
      if (group_.over(port_)) return Status::ready;
    }
    if (patience.count() > 0) std::this_thread::sleep_for(patience);
    return Status::wait;
  }
  void take(engine::Sample& sample) override {
    std::memcpy(static_cast<void*>(&sample.info), message_.data(), sizeof sample.info);
    sample.read_from(message_.data() + sizeof sample.info);
    ++taken_;
    const std::lock_guard lock(group_.mutex());
    group_.start(port_);
  }

 private:
  engine::Exchange& group_;
  std::vector<std::byte> message_;
  int port_ = 0;
  std::int64_t taken_ = 0, end_ = -1;
};

}  // namespace millrace::app
