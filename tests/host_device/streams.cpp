// Streams and events.
#include <algorithm>

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

/// For what asks about an event: not of one that a capture recorded.
cudaError_t refuse_captured(CUevent_st& event) {
  if (!event.captured) return cudaSuccess;
  if (!event.captured->ended) invalidate(*event.captured);
  return cudaErrorCapturedEvent;
}

}  // namespace

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int priority) {
  return call(__func__, [&](Guard&) {
    map_devices();
    *made = new_stream(current_device, flags);
    (*made)->priority = priority;
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
      stream->capture->streams.erase(stream);
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
    TRY(implicit(*stream));
    wait_until_over(guard, stream->tail);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    TRY(refuse_captured(*stream));
    TRY(implicit(*stream));
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
API cudaError_t cudaEventCreate(cudaEvent_t* made) {
  return cudaEventCreateWithFlags(made, 0);
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    if (!there(event, "cudaEventDestroy")) return cudaErrorInvalidResourceHandle;
    event->alive = 0;  // the handle is never used again, so that later uses are seen
    event->mark.reset();
    event->captured.reset();
    --events_held;
    return cudaSuccess;
  });
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!there(event, "cudaEventRecord") || !stream || event->device != stream->device)
      return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      if (flags & cudaEventRecordExternal)
        return add_captured(*stream, cudaGraphNodeTypeEventRecord, nullptr, event);
      event->captured = stream->capture;
      event->after = stream->after;
      event->mark.reset();
      return cudaSuccess;
    }
    TRY(implicit(*stream));
    event->captured.reset();
    event->mark = submit(*stream, begin(*stream));
    return cudaSuccess;
  });
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    CUstream_st* stream = stream_of(handle);
    if (!there(event, "cudaStreamWaitEvent") || !stream) return cudaErrorInvalidResourceHandle;
    if (const auto& capture = event->captured) {  // brings the stream into the capture
      if (capture->ended) return cudaErrorCapturedEvent;
      if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
      if (stream->legacy) {
        invalidate(*capture);
        return cudaErrorStreamCaptureImplicit;
      }
      if (stream->capture && stream->capture != capture) {
        invalidate(*stream->capture);
        invalidate(*capture);
        return cudaErrorStreamCaptureMerge;
      }
      if (!stream->capture) {
        stream->capture = capture;
        capture->streams.insert(stream);
        stream->after.clear();
      }
      stream->after.insert(stream->after.end(), event->after.begin(), event->after.end());
      return cudaSuccess;
    }
    if (stream->capture) {
      if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      if (flags & cudaEventWaitExternal)
        return add_captured(*stream, cudaGraphNodeTypeWaitEvent, nullptr, event);
      invalidate(*stream->capture);
      return cudaErrorStreamCaptureIsolation;
    }
    TRY(implicit(*stream));
    if (!event->mark) return cudaSuccess;  // never recorded: nothing to wait for
    Operation operation = begin(*stream);
    wait_for(operation, *stream, event->mark);
    submit(*stream, std::move(operation));
    return cudaSuccess;
  });
}
API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    if (!there(event, "cudaEventQuery")) return cudaErrorInvalidResourceHandle;
    TRY(refuse_captured(*event));
    TRY(unsafe());
    return seen_over(*event) ? cudaSuccess : cudaErrorNotReady;
  });
}
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    if (!there(start, "cudaEventElapsedTime") || !there(end, "cudaEventElapsedTime"))
      return cudaErrorInvalidResourceHandle;
    TRY(refuse_captured(*start));
    TRY(refuse_captured(*end));
    if (!start->mark || !end->mark || ((start->flags | end->flags) & cudaEventDisableTiming))
      return cudaErrorInvalidResourceHandle;
    if (!start->mark->over || !end->mark->over) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(end->mark->when - start->mark->when).count();
    return cudaSuccess;
  });
}
