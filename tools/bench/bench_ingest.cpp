// `millrace bench ingest`: what it costs to make a sample of a decoded frame, and to hand a frame
// from the reader's thread to the pipeline's, against what else one would do it with.
#include <ATen/ATen.h>          // the other way
#include <ATen/Parallel.h>      // one thread each
#include <opencv2/core.hpp>     // the other way
#include <opencv2/imgproc.hpp>  // cvtColor

#include <cstdio>   // table
#include <cstring>  // memcpy

#include "io/queue/resizer.h"
#include "io/queue/planar.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/hop.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::Clock;
using namespace std::chrono_literals;

constexpr int kFrames = 9;  // a run's queue where nothing is dropped, and the one being written
constexpr int kSlots = 3;   // partime's at two stages

/// Median time of one call of `work`, µs. The last call's number is the number of calls so far.
template <class Work>
double median_us(double seconds, const Work& work) {
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int n = 0; n < 2 || Clock::now() < end; ++n) {
    const auto start = Clock::now();
    work(n);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return median(std::move(times));
}

/// Frames of one size on their way into slots, by each of the ways. All in one thread, as in a
/// worker.
class IngestArm {
 public:
  IngestArm(int width, int height, int channels)
      : resizer_(width, height), width_(width), height_(height), channels_(channels) {
    for (int i = 0; i < kFrames; ++i) {
      io::Frame frame{.width = width, .height = height, .channels = channels, .pixels = {}};
      frame.pixels.resize(frame.bytes());
      for (std::size_t k = 0; k < frame.bytes(); ++k) frame.pixels[k] = std::uint8_t(k * 31 + i);
      frames_.push_back(std::move(frame));
    }
    for (int i = 0; i < kSlots; ++i) slots_.push_back(at::zeros({1, channels, height, width}));
    // A byte read and a float written for each of the picture's bytes: as much is read and written
    // by copying 2.5 bytes.
    copied_ = frames_[0].bytes() * 5 / 2;
    for (int i = 0; i < kSlots; ++i) {
      from_.emplace_back(copied_, std::uint8_t(i));
      to_.emplace_back(copied_, std::uint8_t(0));
    }
  }

  void turn(double seconds) {
    ours_.push_back(median_us(seconds, [this](int n) { by_resizer(n); }));
    memcpy_.push_back(median_us(seconds, [this](int n) { by_memcpy(n); }));
    opencv_.push_back(median_us(seconds, [this](int n) { by_opencv(n); }));
    over_memcpy_.push_back(ours_.back() / memcpy_.back());
    over_opencv_.push_back(ours_.back() / opencv_.back());
  }

  Json json() const {
    return {{"arm", std::string(channels_ == 3 ? "rgb " : "grey ") + std::to_string(width_) + "x" +
                        std::to_string(height_)},
            {"ingest_us", median(ours_)},
            {"memcpy_us", median(memcpy_)},
            {"opencv_us", median(opencv_)},
            {"over_memcpy", median(over_memcpy_)},
            {"over_opencv", median(over_opencv_)}};
  }

 private:
  void by_resizer(int n) {
    io::to_planar(resizer_.fit(frames_[std::size_t(n % kFrames)]),
                  slots_[std::size_t(n % kSlots)].mutable_data_ptr<float>());
  }

  void by_memcpy(int n) {
    std::memcpy(to_[std::size_t(n % kSlots)].data(), from_[std::size_t(n % kSlots)].data(),
                copied_);
  }

  void by_opencv(int n) {
    io::Frame& frame = frames_[std::size_t(n % kFrames)];
    cv::Mat picture(height_, width_, CV_MAKETYPE(CV_8U, channels_), frame.pixels.data());
    if (channels_ == 3) {
      cv::cvtColor(picture, rgb_, cv::COLOR_BGR2RGB);  // OpenCV decodes to BGR
      picture = rgb_;
    }
    picture.convertTo(floats_, CV_32F, 1.0 / 255);
    const at::Tensor tensor = at::from_blob(floats_.data, {1, height_, width_, channels_});
    slots_[std::size_t(n % kSlots)].copy_(tensor.permute({0, 3, 1, 2}));
  }

  std::vector<io::Frame> frames_;
  std::vector<at::Tensor> slots_;
  std::vector<std::vector<std::uint8_t>> from_, to_;
  std::size_t copied_;
  io::Resizer resizer_;
  int width_, height_, channels_;
  cv::Mat rgb_, floats_;
  std::vector<double> ours_, memcpy_, opencv_, over_memcpy_, over_opencv_;
};

/// Frames from one thread to another, by each of the ways.
class HopArm {
 public:
  explicit HopArm(Traffic traffic) : traffic_(std::move(traffic)) {}

  void turn(double seconds) {
    ours_.push_back(median(hop_by_frame_queue(traffic_, seconds)));
    gstreamer_.push_back(median(hop_by_gstreamer(traffic_, seconds)));
    mutex_.push_back(median(hop_by_mutex(traffic_, seconds)));
    over_gstreamer_.push_back(ours_.back() / gstreamer_.back());
    over_mutex_.push_back(ours_.back() / mutex_.back());
  }

  Json json() const {
    return {{"arm", "hop " + traffic_.name},
            {"queue_ns", median(ours_)},
            {"gstreamer_ns", median(gstreamer_)},
            {"mutex_ns", median(mutex_)},
            {"over_gstreamer", median(over_gstreamer_)},
            {"over_mutex", median(over_mutex_)}};
  }

 private:
  Traffic traffic_;
  std::vector<double> ours_, gstreamer_, mutex_, over_gstreamer_, over_mutex_;
};

void print_row(const Json& arm) {
  std::printf("%-16s", arm["arm"].get<std::string>().c_str());
  for (const auto& [name, value] : arm.items()) {
    if (value.is_number()) std::printf("  %s %.4g", name.c_str(), value.get<double>());
  }
  std::printf("\n");
}

}  // namespace

Json bench_ingest(const BenchArguments& arguments) {
  at::set_num_threads(1);
  cv::setNumThreads(1);
  std::vector<IngestArm> pictures;
  for (const int channels : {3, 1}) {
    for (const auto& [width, height] : {std::pair(640, 480), {1280, 720}, {1920, 1080}})
      pictures.emplace_back(width, height, channels);
  }
  std::vector<HopArm> hops;
  hops.emplace_back(Traffic{"at once", 0us});
  hops.emplace_back(Traffic{"every ms", 1ms});
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    for (IngestArm& arm : pictures) arm.turn(arguments.seconds);
    for (HopArm& arm : hops) arm.turn(arguments.seconds);
  }
  Json results = {{"suite", "ingest"},
                  {"rounds", arguments.rounds},
                  {"seconds", arguments.seconds},
                  {"arms", Json::array()}};
  for (const IngestArm& arm : pictures) results["arms"].push_back(arm.json());
  for (const HopArm& arm : hops) results["arms"].push_back(arm.json());
  for (const Json& arm : results["arms"]) print_row(arm);
  results["provenance"] = app::provenance(1);
  return results;
}

}  // namespace millrace::bench
