#include "tools/page/crowd.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

namespace millrace::page {
namespace {

constexpr std::size_t kMostConnections = 256;

}  // namespace

void Crowd::admit(int socket) {
  if (connections_.size() >= kMostConnections) {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& one) { return one.asks(); });
    if (oldest == connections_.end()) {
      ::close(socket);
      return;
    }
    connections_.erase(oldest);
  }
  connections_.emplace_back(site_, socket);
}

bool Crowd::turn(std::span<pollfd> others, std::chrono::milliseconds limit) {
  polled_.assign(others.begin(), others.end());
  for (const Connection& one : connections_) polled_.push_back({one.socket(), one.events(), 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_beat_ - Clock::now());
  const auto wait = std::clamp(left, std::chrono::milliseconds(0), limit);
  if (::poll(polled_.data(), polled_.size(), int(wait.count())) < 0) return false;
  std::copy_n(polled_.begin(), others.size(), others.begin());
  const bool served = serve(std::span(polled_).subspan(others.size()));
  const Clock::time_point now = Clock::now();
  if (now >= next_beat_) {
    next_beat_ = now + Publisher::period(viewers_);
    publisher_.beat(now, viewers_, waiting_);
  }
  send_latest();
  remove_over();
  return served;
}

bool Crowd::serve(std::span<const pollfd> polled) {
  bool served = false;
  auto at = polled.begin();
  for (auto one = connections_.begin(); one != connections_.end(); ++at) {
    try {
      if (at->revents) one->serve(at->revents);
      served = served || at->revents;
      ++one;
    } catch (const std::exception&) {  // of the run it looks at, or no memory
      one = connections_.erase(one);
    }
  }
  return served;
}

void Crowd::send_latest() {
  waiting_ = false;
  for (Connection& one : connections_) waiting_ = one.send_latest() || waiting_;
}

void Crowd::remove_over() {
  const Clock::time_point now = Clock::now();
  connections_.remove_if([&](const Connection& one) { return one.over(now); });
  const int viewers = int(std::count_if(connections_.begin(), connections_.end(),
                                        [](const Connection& one) { return one.watches(); }));
  if (viewers > viewers_) next_beat_ = now;  // a new one need not wait for it
  viewers_ = viewers;
}

}  // namespace millrace::page
