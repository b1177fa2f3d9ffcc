// Ranks that are threads of one process: for tests without MPI, and for ThreadSanitizer.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/pipeline/exchange.h"

namespace millrace::engine {

/// The ranks' shared medium.
struct Sea {
  std::mutex mutex;
  /// [giver, taker, tag]: messages in flight.
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> messages;
  /// [taker, subject]
  std::map<std::pair<int, int>, std::deque<Exchange::Letter>> letters;
};

/// Messages stay in the sea until the taker polls, so a send completes at once.
class ThreadExchange final : public Exchange {
 public:
  ThreadExchange(std::shared_ptr<Sea> sea, int rank, int ranks)
      : sea_(std::move(sea)), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int open(int peer, int tag, const Parts& parts, bool sends) override {
    const auto [from, to] = sends ? std::pair(rank_, peer) : std::pair(peer, rank_);
    ports_.push_back({{from, to, tag}, parts, sends});
    return int(ports_.size()) - 1;
  }
  void close_ports() override {
    ports_.clear();
    waiting_.clear();
  }
  void start(int port) override {
    Port& mine = ports_[std::size_t(port)];
    if (!mine.sends) {
      waiting_[mine.way].push_back(port);
      return;
    }
    if (is_mute) return;
    std::vector<std::byte> bytes;
    for (const auto& part : mine.parts) bytes.insert(bytes.end(), part.begin(), part.end());
    const std::lock_guard lock(sea_->mutex);
    sea_->messages[mine.way].push_back(std::move(bytes));
    ++messages_sent;
  }
  bool over(int port) override {
    const Port& mine = ports_[std::size_t(port)];
    return mine.sends || std::ranges::count(waiting_[mine.way], port) == 0;
  }
  int arrived() override {
    const std::lock_guard lock(sea_->mutex);
    for (auto& [way, ports] : waiting_) {
      auto& messages = sea_->messages[way];
      if (ports.empty() || messages.empty()) continue;
      const int port = ports.front();
      ports.pop_front();
      auto from = messages.front().begin();
      for (const auto& part : ports_[std::size_t(port)].parts) {
        std::copy_n(from, part.size(), part.begin());
        from += std::ptrdiff_t(part.size());
      }
      messages.pop_front();
      return port;
    }
    return -1;
  }
  void post(int to, About about, std::string text) override {
    if (is_mute) return;
    const std::lock_guard lock(sea_->mutex);
    sea_->letters[{to, int(about)}].push_back({rank_, std::move(text)});
  }
  std::optional<Letter> letter(About about) override {
    const std::lock_guard lock(sea_->mutex);
    auto& letters = sea_->letters[{rank_, int(about)}];
    if (letters.empty()) return std::nullopt;
    Letter first = std::move(letters.front());
    letters.pop_front();
    return first;
  }
  bool all_posted() override { return true; }
  void abandon() override {}

  std::int64_t messages_sent = 0;
  std::atomic<bool> is_mute = false;  ///< messages that this rank sends are lost

 private:
  struct Port {
    std::tuple<int, int, int> way;
    Parts parts;
    bool sends;
  };

  const std::shared_ptr<Sea> sea_;
  const int rank_, ranks_;
  std::vector<Port> ports_;
  std::map<std::tuple<int, int, int>, std::deque<int>> waiting_;  ///< in order
};

}  // namespace millrace::engine
