#include "tools/app/feeds/lockstep_feed.h"

#include <algorithm>
#include <span>
#include <thread>

namespace millrace::app {
namespace {

template <class T>
std::span<std::byte> as_bytes(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

LockstepFeed::LockstepFeed(engine::Feed& own, engine::SumGroup& copies)
    : own_(own), copies_(copies), exchange_(copies.exchange()) {
  const std::lock_guard lock(exchange_.mutex());
  peers_.resize(leads() ? std::size_t(exchange_.ranks() - 1) : 1);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = leads() ? int(i) + 1 : 0;
    peers_[i].out = exchange_.open_to(rank, engine::Exchange::kFeedTag, {as_bytes(peers_[i].says)});
    peers_[i].in =
        exchange_.open_from(rank, engine::Exchange::kFeedTag, {as_bytes(peers_[i].said)});
    listen(peers_[i]);
  }
}

LockstepFeed::~LockstepFeed() {
  const std::lock_guard lock(exchange_.mutex());
  exchange_.close_ports();
}

void LockstepFeed::listen(Peer& peer) {
  peer.heard = false;
  exchange_.start(peer.in);
}

bool LockstepFeed::hears(Peer& peer) {
  peer.heard = peer.heard || exchange_.over(peer.in);
  return peer.heard;
}

void LockstepFeed::say(Peer& peer, Word word) {
  std::unique_lock lock(exchange_.mutex());
  while (!exchange_.over(peer.out)) {  // the word before was answered, so this ends soon
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  peer.says = word;
  exchange_.start(peer.out);
}

engine::Feed::Status LockstepFeed::all_ready() {
  const std::lock_guard lock(exchange_.mutex());
  copies_.require_alive();
  bool all = true;
  for (Peer& peer : peers_) {
    if (!hears(peer)) {
      all = false;
    } else if (peer.said == Word::end) {
      return Status::end;
    }
  }
  return all ? Status::ready : Status::wait;
}

engine::Feed::Status LockstepFeed::poll(std::chrono::microseconds patience) {
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
  const Status all = all_ready();
  over_ = all == Status::end;
  if (all == Status::wait && patience.count() > 0) std::this_thread::sleep_for(patience);
  return all;
}

void LockstepFeed::take(engine::Sample& sample) {
  if (leads()) {
    for (Peer& peer : peers_) say(peer, Word::ready);
  }
  own_.take(sample);
  said_ = false;
  const std::lock_guard lock(exchange_.mutex());
  for (Peer& peer : peers_) listen(peer);
}

void LockstepFeed::end() {
  for (Peer& peer : peers_) say(peer, Word::end);
}

}  // namespace millrace::app
