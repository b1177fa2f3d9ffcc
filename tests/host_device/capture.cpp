// Capture: what a stream under capture is given becomes nodes, and what CUDA forbids meanwhile.
#include <algorithm>

#include "tests/host_device/graphs.h"

namespace host_device {
namespace {

using CapturePtr = std::shared_ptr<Capture>;
std::vector<CapturePtr>& captures = *new std::vector<CapturePtr>;

/// Spoils the captures that `meets` holds of, and refuses if there are any.
template <class Meets>
cudaError_t refuse_if_any(cudaError_t error, const Meets& meets) {
  cudaError_t result = cudaSuccess;
  for (const CapturePtr& capture : captures) {
    if (!meets(*capture)) continue;
    invalidate(*capture);
    result = error;
  }
  return result;
}

}  // namespace

void invalidate(Capture& capture) {
  capture.invalid = true;
}

cudaError_t unsafe() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  return refuse_if_any(cudaErrorStreamCaptureUnsupported, [](const Capture& capture) {
    if (capture.thread == std::this_thread::get_id())
      return capture.mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == thread_mode;
  });
}

cudaError_t unsafe_for_device(int device) {
  return refuse_if_any(cudaErrorStreamCaptureUnsupported,
                       [=](const Capture& capture) { return capture.stream->device == device; });
}

cudaError_t refuse_captured(CUstream_st& stream) {
  if (!stream.capture) return cudaSuccess;
  invalidate(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t add_captured(CUstream_st& stream, std::shared_ptr<Work> work) {
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  Node* node = add_node(*stream.capture->graph, work->type, stream.after);
  node->work = std::move(work);
  stream.after = {node};
  return cudaSuccess;
}

int captures_under_way() {
  return int(captures.size());
}

}  // namespace host_device

using namespace host_device;

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
  stream->after.clear();
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
  stream->after.clear();
  std::erase(captures, capture);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  *made = new_graph(capture->graph);
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
       if (after) *after = reinterpret_cast<const cudaGraphNode_t*>(stream->after.data());
       if (count) *count = stream->after.size();
     })
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
