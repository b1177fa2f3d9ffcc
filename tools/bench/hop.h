// How long a frame takes from one thread to another, by several ways.
#pragma once

#include <chrono>  // pauses
#include <string>  // names
#include <vector>  // times

namespace millrace::bench {

/// What lies between a frame's arrival and the one before.
struct Traffic {
  std::string name;
  std::chrono::microseconds pause;  ///< after a frame has arrived, until the next is sent
};

/// Sends frames one by one for about `seconds`; each goes when the one before has arrived. From
/// before the sender's call to where the receiver has the frame in hand, in nanoseconds.
std::vector<double> hop_by_frame_queue(const Traffic& traffic, double seconds);
/// The same through a std::deque under a mutex, with a condition variable.
std::vector<double> hop_by_mutex(const Traffic& traffic, double seconds);
/// The same through GStreamer's `queue`, from pad to pad, without further elements.
std::vector<double> hop_by_gstreamer(const Traffic& traffic, double seconds);

}  // namespace millrace::bench
