// Streams and events.
#include "tests/host_device/graphs.h"

using namespace host_device;

namespace {

const bool kStale = setting("HOST_DEVICE_STALE", 0) != 0;

bool seen_over(const CUevent_st& event) {
  const Mark* mark = event.mark.get();
  if (!mark || mark->over) return true;
  // A graph's event that the device has not come to: CUDA does not say what the host sees.
  return kStale && mark->older && std::rand() % 2 && mark->older->over;
}

}  // namespace

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int) {
  return call(__func__, [&](Guard&) {
    if (!(flags & cudaStreamNonBlocking)) violation("a stream that the legacy stream waits for");
    map_devices();
    *made = new_stream(current_device);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  return cudaStreamCreateWithPriority(made, flags, 0);
}
API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!stream || stream->legacy) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      violation("cudaStreamDestroy of a stream that is being captured");
      invalidate(*stream->capture);
    }
    streams.erase(stream);  // its work goes on
    stream->stop = true;
    changed.notify_all();
    if (stream->thread.joinable()) stream->thread.detach();
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call(__func__, [&](Guard& guard) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    TRY(refuse_captured(*stream));
    wait_until_over(guard, stream->tail);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    TRY(refuse_captured(*stream));
    return !stream->tail || stream->tail->over ? cudaSuccess : cudaErrorNotReady;
  });
}
API cudaError_t cudaDeviceSynchronize() {
  return call(__func__, [&](Guard& guard) -> cudaError_t {
    TRY(unsafe_for_device(current_device));
    wait_for_device(guard, current_device);
    return cudaSuccess;
  });
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  return call(__func__, [&](Guard&) {
    *made = new_handle<CUevent_st>();
    (*made)->device = current_device;
    (*made)->flags = flags;
    ++events_held;
    return cudaSuccess;
  });
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    if (!there(event, "cudaEventDestroy")) return cudaErrorInvalidResourceHandle;
    event->alive = 0;  // the handle is never used again, so that later uses are seen
    event->mark.reset();
    --events_held;
    return cudaSuccess;
  });
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!there(event, "cudaEventRecord") || !stream || event->device != stream->device)
      return cudaErrorInvalidResourceHandle;
    TRY(refuse_captured(*stream));  // a device would order captured streams by it
    event->mark = submit(*stream, {});
    return cudaSuccess;
  });
}
API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    if (!there(event, "cudaEventQuery")) return cudaErrorInvalidResourceHandle;
    TRY(unsafe());
    return seen_over(*event) ? cudaSuccess : cudaErrorNotReady;
  });
}
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    if (!there(start, "cudaEventElapsedTime") || !there(end, "cudaEventElapsedTime"))
      return cudaErrorInvalidResourceHandle;
    if (!start->mark || !end->mark || ((start->flags | end->flags) & cudaEventDisableTiming))
      return cudaErrorInvalidResourceHandle;
    if (!start->mark->over || !end->mark->over) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(end->mark->when - start->mark->when).count();
    return cudaSuccess;
  });
}
