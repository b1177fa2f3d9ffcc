// Streams, events, and capture: what a stream under capture is given becomes nodes, and what CUDA
// forbids meanwhile.
#include <algorithm>

#include "tests/host_device/core.h"

namespace host_device {
namespace {

using CapturePtr = std::shared_ptr<Capture>;
std::vector<CapturePtr>& captures = *new std::vector<CapturePtr>;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/// Spoils the captures that `meets` holds of, and refuses if there are any.
template <class Meets>
cudaError_t refuse_if_any(cudaError_t error, const Meets& meets) {
  cudaError_t result = cudaSuccess;
  for (const CapturePtr& capture : captures) {
    if (!meets(*capture)) continue;
    capture->invalid = true;
    result = error;
  }
  return result;
}

/// For waiting for all of a device.
cudaError_t unsafe_for_device(int device) {
  return refuse_if_any(cudaErrorStreamCaptureUnsupported,
                       [=](const Capture& capture) { return capture.stream->device == device; });
}

const bool kStale = setting("HOST_DEVICE_STALE", 0) != 0;

bool seen_over(const CUevent_st& event) {
  const Mark* mark = event.mark.get();
  if (!mark || mark->over) return true;
  // A graph's event that the device has not come to: CUDA does not say what the host sees.
  return kStale && mark->older && std::rand() % 2 && mark->older->over;
}

}  // namespace

cudaError_t unsafe() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  return refuse_if_any(cudaErrorStreamCaptureUnsupported, [](const Capture& capture) {
    if (capture.thread == std::this_thread::get_id())
      return capture.mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == thread_mode;
  });
}

cudaError_t refuse_captured(CUstream_st& stream) {
  if (!stream.capture) return cudaSuccess;
  stream.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t add_captured(CUstream_st& stream, std::shared_ptr<Work> work) {
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  Graph& graph = stream.capture->graph;
  Node node{.type = work->type, .work = std::move(work)};
  if (!graph.empty()) node.after = {graph.size() - 1};
  stream.capture->last = &graph.emplace_back(std::move(node));
  return cudaSuccess;
}

int captures_under_way() {
  return int(captures.size());
}

}  // namespace host_device

using namespace host_device;

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
    stream->capture->invalid = true;
  }
  stream->alive = 0;  // its work goes on
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
})
CALL(cudaEventDestroy, (cudaEvent_t event), {
  if (!there(event, "cudaEventDestroy")) return cudaErrorInvalidResourceHandle;
  event->alive = 0;  // the handle is never used again, so that later uses are seen
  event->mark.reset();
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

SUCCEEDS(cudaError_t, cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode),
         std::swap(thread_mode, *mode))
CALL(cudaStreamBeginCapture, (cudaStream_t handle, cudaStreamCaptureMode mode), {
  static std::uint64_t begun = 0;
  CUstream_st* stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>(
      Capture{.id = ++begun, .mode = mode, .thread = std::this_thread::get_id(), .stream = stream});
  captures.push_back(stream->capture);
})
CALL(cudaStreamEndCapture, (cudaStream_t handle, cudaGraph_t* made), {
  *made = nullptr;
  CUstream_st* stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const CapturePtr capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  stream->capture.reset();
  std::erase(captures, capture);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  *made = new_graph(std::move(capture->graph));
})
CALL(cudaStreamGetCaptureInfo,
     (cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
      cudaGraph_t* graph, const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
      std::size_t* count),
     {
       const CUstream_st* stream = stream_of(handle);
       if (!stream) return cudaErrorInvalidResourceHandle;
       const Capture* capture = stream->capture.get();
       *status = !capture           ? cudaStreamCaptureStatusNone
                 : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
       if (edges) *edges = nullptr;
       if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
       if (id) *id = capture->id;
       if (graph) *graph = nullptr;  // nobody adds nodes to it meanwhile
       if (after) *after = &capture->last;
       if (count) *count = capture->last ? 1 : 0;
     })
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
