// The seam between what a step does and how it is run again and again.
#pragma once

#include <c10/core/Device.h>  // c10::Device

#include <functional>  // bodies
#include <memory>      // recordings
#include <string>      // names

namespace millrace::capture {

/// A piece of a stage's step, prepared once: the same work on the same slots each time.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

/// Makes recordings for one device. Thread-bound: the thread that records is the one that replays.
class Recorder {
 public:
  virtual ~Recorder() = default;
  /// `body` is what each replay does. It does not run during recording.
  virtual std::unique_ptr<Recording> record(std::function<void()> body) = 0;
};

/// A CPU core: a recording is the prepared body itself, replayed by calling it. A CUDA device: the
/// body run on a stream of the recorder's own. Throws std::invalid_argument for a device that this
/// build can't use.
std::unique_ptr<Recorder> make_recorder(c10::Device device);

/// Has LibTorch use CUDA kernels whose results are the same in every run, and float32 where it says
/// float32. For the process.
void use_repeatable_kernels();
/// CUDA devices that can be used; 0 without a driver, a device or CUDA in this build.
int cuda_devices();
/// "NVIDIA H200", or "" for a device that is not there.
std::string cuda_device_name(int index);
/// CUDA version of LibTorch, "13.0", or "" without.
std::string cuda_version();

}  // namespace millrace::capture
