// Capture: what a stream under capture is given becomes nodes, and what CUDA forbids meanwhile.
#include <algorithm>

#include "tests/host_device/graphs.h"

namespace host_device {
namespace {

using CapturePtr = std::shared_ptr<Capture>;
std::vector<CapturePtr>& captures = *new std::vector<CapturePtr>;

/// Whether all nodes of the capture come before what its first stream would do next.
bool joined(const Capture& capture) {
  std::vector<Node*> left(capture.origin->after);
  std::set<Node*> reached(left.begin(), left.end());
  while (!left.empty()) {
    const Node* node = left.back();
    left.pop_back();
    for (Node* before : node->after)
      if (reached.insert(before).second) left.push_back(before);
  }
  for (const CUstream_st* stream : capture.streams)
    for (Node* node : stream->after)
      if (!reached.count(node)) return false;
  return true;
}

/// Spoils the captures that `meets` holds of, and refuses with `error` if there are any.
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
  return refuse_if_any(cudaErrorStreamCaptureUnsupported, [=](const Capture& capture) {
    return std::ranges::any_of(capture.streams, [=](auto* of) { return of->device == device; });
  });
}

cudaError_t implicit(const CUstream_st& stream) {
  if (!stream.legacy) return cudaSuccess;
  return refuse_if_any(cudaErrorStreamCaptureImplicit, [&](const Capture& capture) {
    return std::ranges::any_of(
        capture.streams, [&](auto* of) { return of->device == stream.device && of->blocking; });
  });
}

cudaError_t refuse_captured(CUstream_st& stream) {
  if (!stream.capture) return cudaSuccess;
  invalidate(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t add_captured(CUstream_st& stream, cudaGraphNodeType type, std::shared_ptr<Work> work,
                         cudaEvent_t event) {
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  Node* node = add_node(*stream.capture->graph, type, stream.after);
  node->work = std::move(work);
  node->event = event;
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
API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    static std::uint64_t begun = 0;
    CUstream_st* stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>(Capture{.id = ++begun,
                                                        .mode = mode,
                                                        .thread = std::this_thread::get_id(),
                                                        .origin = stream,
                                                        .streams = {stream}});
    stream->after.clear();
    captures.push_back(stream->capture);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    *made = nullptr;
    CUstream_st* stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const CapturePtr capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != stream) {
      invalidate(*capture);
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    const cudaError_t result = capture->invalid    ? cudaErrorStreamCaptureInvalidated
                               : !joined(*capture) ? cudaErrorStreamCaptureUnjoined
                                                   : cudaSuccess;
    for (CUstream_st* other : capture->streams) {
      other->capture.reset();
      other->after.clear();
    }
    capture->ended = true;
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (result == cudaSuccess) *made = new_graph(capture->graph);
    return result;
  });
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                         unsigned long long* id, cudaGraph_t* graph,
                                         const cudaGraphNode_t** after,
                                         const cudaGraphEdgeData** edges, std::size_t* count) {
  return call(__func__, [&](Guard&) -> cudaError_t {
    const CUstream_st* stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    TRY(implicit(*stream));
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
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
