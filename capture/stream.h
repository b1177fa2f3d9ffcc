// Work that is recorded once and launched again and again: what a recorded step asks of a device.
#pragma once

#include <ATen/core/Tensor.h>  // what is copied

#include <cstdint>     // times
#include <functional>  // bodies
#include <memory>      // what a stream makes
#include <vector>      // lists of parts

namespace millrace::capture {

/// A mark in a stream's work that other streams wait for, on their device. Made by one stream,
/// which alone signals it. A wait is for the signal launched last; the launch that waits comes
/// after that launch in the program, and so does the next signal after everything that waits
/// (tokens and slots see to it).
class Event {
 public:
  virtual ~Event() = default;
};

/// Recorded work at fixed addresses. It can't run alone: see Stream::assemble().
class Piece {
 public:
  virtual ~Piece() = default;
};

/// A piece in a graph, with what it waits for and what it signals when it is over; null: nothing.
struct Part {
  const Piece* piece = nullptr;
  Event* wait = nullptr;
  Event* signal = nullptr;
};

/// Pieces one after another, launched as one. Made by a stream, and launched there.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Returns at once. Its work comes after all that the stream was given before.
  virtual void launch() = 0;
  /// Whether the last launch is over.
  virtual bool over() = 0;
  /// How long the pieces of the last launch took, without what they waited for; it must be over.
  virtual std::int64_t duration_ns() = 0;
};

/// One stage's stream of work on its device. Thread-bound once recording is over; until then, one
/// thread may record for all streams.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Runs `body` once to warm up, after all work that the device was given, and records it. What it
  /// allocates stays its own; pieces of one `pool` share memory that is free between them, so they
  /// must run in the order of recording. Throws std::runtime_error with LibTorch's words for work
  /// that can't be recorded.
  virtual std::unique_ptr<Piece> record(int pool, std::function<void()> body) = 0;
  virtual std::unique_ptr<Graph> assemble(const std::vector<Part>& parts) = 0;
  /// Gives the stream work that is not recorded.
  virtual void run(std::function<void()> body) = 0;
  /// Within a body: copies bytes between any two places, host (pinned), this device or a peer.
  virtual void copy(at::Tensor& to, const at::Tensor& from) = 0;
  /// Has the calling thread wait for all work given so far.
  virtual void synchronize() = 0;
};

/// A stream on the whole device. Throws std::invalid_argument for a device that this build can't
/// record on.
std::unique_ptr<Stream> make_stream(c10::Device device);
/// Streams that share the device, each on SMs of its own in proportion to its work (>= 0, any
/// unit). Throws as make_stream() does, and also std::invalid_argument for more streams than the
/// device's SMs can be split into, std::runtime_error with the driver's words for what it refuses.
std::vector<std::unique_ptr<Stream>> make_streams(c10::Device device,
                                                  const std::vector<double>& work);
/// Whether `device` can copy from `other`'s memory.
bool reads(c10::Device device, c10::Device other);
/// Zeros on the host that a device can copy from and to by itself; plain memory where no CUDA
/// device is.
at::Tensor pinned_zeros(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);

}  // namespace millrace::capture
