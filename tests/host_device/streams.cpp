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

CALL(cudaStreamCreateWithPriority, (cudaStream_t * made, unsigned flags, int), {
  if (!(flags & cudaStreamNonBlocking)) violation("a stream that the legacy stream waits for");
  map_devices();
  *made = new_stream(current_device);
})
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  return cudaStreamCreateWithPriority(made, flags, 0);
}
CALL(cudaStreamDestroy, (cudaStream_t handle), {
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
})
CALL(cudaStreamSynchronize, (cudaStream_t handle), {
  CUstream_st* stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  TRY(refuse_captured(*stream));
  wait_until_over(guard, stream->tail);
})
CALL(cudaStreamQuery, (cudaStream_t handle), {
  CUstream_st* stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  TRY(refuse_captured(*stream));
  return !stream->tail || stream->tail->over ? cudaSuccess : cudaErrorNotReady;
})
CALL(cudaDeviceSynchronize, (), {
  TRY(unsafe_for_device(current_device));
  wait_for_device(guard, current_device);
})

CALL(cudaEventCreateWithFlags, (cudaEvent_t * made, unsigned flags), {
  *made = new_handle<CUevent_st>();
  (*made)->device = current_device;
  (*made)->flags = flags;
  ++events_held;
})
CALL(cudaEventDestroy, (cudaEvent_t event), {
  if (!there(event, "cudaEventDestroy")) return cudaErrorInvalidResourceHandle;
  event->alive = 0;  // the handle is never used again, so that later uses are seen
  event->mark.reset();
  --events_held;
})
CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t handle), {
  CUstream_st* stream = stream_of(handle);
  if (!there(event, "cudaEventRecord") || !stream || event->device != stream->device)
    return cudaErrorInvalidResourceHandle;
  TRY(refuse_captured(*stream));  // a device would order captured streams by it
  event->mark = submit(*stream, {});
})
CALL(cudaEventQuery, (cudaEvent_t event), {
  if (!there(event, "cudaEventQuery")) return cudaErrorInvalidResourceHandle;
  TRY(unsafe());
  return seen_over(*event) ? cudaSuccess : cudaErrorNotReady;
})
CALL(cudaEventElapsedTime, (float* ms, cudaEvent_t start, cudaEvent_t end), {
  if (!there(start, "cudaEventElapsedTime") || !there(end, "cudaEventElapsedTime"))
    return cudaErrorInvalidResourceHandle;
  if (!start->mark || !end->mark || ((start->flags | end->flags) & cudaEventDisableTiming))
    return cudaErrorInvalidResourceHandle;
  if (!start->mark->over || !end->mark->over) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(end->mark->when - start->mark->when).count();
})
