// Tensors in 8 bits, one block per line.
#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

/// Calls work(i) for the elements of the block's line.
template <class Work>
DEVICE void each_of_line(const QuantizedArguments& q, const Work& work) {
  for (int i = thread(); i < q.parts * q.width; i += kThreads)
    work((long long)(i / q.width) * q.apart + block() * q.width + i % q.width);
}

KERNEL(kThreads) quantize(BY_VALUE QuantizedArguments q) {
  start();
  const float first = q.values[block() * q.width];
  double lowest = first, highest = first;
  each_of_line(q, [&](long long at) {
    lowest = q.values[at] < lowest ? q.values[at] : lowest;
    highest = q.values[at] > highest ? q.values[at] : highest;
  });
  const float least =
      float(combined_in_block<kThreads>(lowest, [](double a, double b) { return b < a ? b : a; }));
  const float most =
      float(combined_in_block<kThreads>(highest, [](double a, double b) { return b > a ? b : a; }));
  const float step = (most - least) * (1.0f / 255), inverse = step >= kSmallestStep ? 1 / step : 0;
  each_of_line(q, [&](long long at) {
    const float scaled = rintf((q.values[at] - least) * inverse);
    q.bytes[at] = (unsigned char)(scaled < 255 ? scaled : 255.0f);
  });
  if (thread() > 0) return;
  q.ranges[2 * block()] = least;
  q.ranges[2 * block() + 1] = step;
}

KERNEL(kThreads) dequantize(BY_VALUE QuantizedArguments q) {
  start();
  const float least = q.ranges[2 * block()], step = q.ranges[2 * block() + 1];
  each_of_line(q, [&](long long at) { q.made[at] = fmaf(float(q.bytes[at]), step, least); });
}

}  // namespace millrace::gpu
