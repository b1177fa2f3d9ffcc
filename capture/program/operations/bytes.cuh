// Copies between pinned memory and the device, and samples of bytes.
#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

/// The host sees a Unit whole, and only after all that was written before.
template <class Unit>
KERNEL(kThreads)
copy_bytes(BY_VALUE CopyArguments c) {
  start();
  if (c.to_host) order_writes();
  for (int i = block() * kThreads + thread(); i < c.bytes / int(sizeof(Unit));
       i += c.blocks * kThreads)
    static_cast<Unit*>(c.to)[i] = static_cast<const Unit*>(c.from)[i];
}

/// One thread per pixel. Each float is the quotient correctly rounded, as on a core.
KERNEL(kThreads) sample_of_bytes(BY_VALUE BytesArguments b) {
  start();
  const int pixel = block() * kThreads + thread();
  if (pixel >= b.pixels) return;
  for (int c = 0; c < b.channels; ++c)
    b.to[c * b.pixels + pixel] = float(b.bytes[pixel * b.channels + c]) / 255;
}

}  // namespace millrace::gpu
