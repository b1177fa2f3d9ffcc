// What the host device must find, or tests that ran on it show nothing.
#include <gtest/gtest.h>

#include "tests/host_device/host_device.h"

namespace {

class HostDevice : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(hostDeviceViolations != nullptr) << "to be run with the host device preloaded";
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc(reinterpret_cast<void**>(&device), 64);
  }
  void TearDown() override {
    hostDeviceDelay(0);
    EXPECT_EQ(hostDeviceViolations(), 0);
  }
  void begin(cudaStream_t stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  cudaGraph_t end(cudaStream_t stream, cudaError_t expected = cudaSuccess) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), expected);
    return graph;
  }
  cudaGraphExec_t executable(cudaGraph_t graph) {
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    return made;
  }
  cudaError_t fill(int value, cudaStream_t stream) {
    return cudaMemsetAsync(device, value, 4, stream);
  }

  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  int* device = nullptr;
};

TEST_F(HostDevice, RefusesUnderCaptureWhatMayBeUnsafe) {
  void* memory = nullptr;
  int pageable[4] = {};
  const auto refused = [&](cudaError_t got) {
    EXPECT_EQ(got, cudaErrorStreamCaptureUnsupported);
    end(a, cudaErrorStreamCaptureInvalidated);
  };
  begin(a), refused(cudaMalloc(&memory, 64));
  begin(a), refused(cudaHostAlloc(&memory, 64, 0));
  begin(a), refused(cudaFree(device));
  begin(a), refused(cudaStreamSynchronize(a));
  begin(a), refused(cudaStreamQuery(a));
  begin(a), refused(cudaDeviceSynchronize());
  begin(a), refused(cudaEventQuery(event));
  begin(a), refused(cudaMemcpyAsync(pageable, device, 16, cudaMemcpyDefault, a));
}

TEST_F(HostDevice, SaysWhatADeviceWouldNot) {
  const auto is_violation = [&](const char* what) { EXPECT_GE(hostDeviceViolations(), 1) << what; };
  begin(a);
  fill(1, a);
  const cudaGraphExec_t graph = executable(end(a));
  hostDeviceDelay(20000);
  fill(1, a), fill(2, b);
  is_violation("two streams write in no order");
  hostDeviceDelay(0);
  cudaDeviceSynchronize();
  cudaFree(device);
  cudaGraphLaunch(graph, a), cudaStreamSynchronize(a);
  is_violation("a graph uses memory that was freed");
  cudaGraphExecDestroy(graph);
  EXPECT_EQ(cudaGraphLaunch(graph, a), cudaErrorInvalidValue);
  is_violation("a graph is launched that is gone");
  cudaEventDestroy(event);
  EXPECT_EQ(cudaEventRecord(event, a), cudaErrorInvalidResourceHandle);
  is_violation("an event is recorded that is gone");
  cudaStreamDestroy(b);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorInvalidResourceHandle);
  is_violation("a stream is waited for that is gone");
}

TEST_F(HostDevice, SaysWhatAGraphLeavesOpen) {
  cudaGraph_t waits = nullptr;
  cudaGraphNode_t node = nullptr;
  cudaGraphCreate(&waits, 0);
  cudaGraphAddEventWaitNode(&node, waits, nullptr, 0, event);
  cudaGraphLaunch(executable(waits), a), cudaStreamSynchronize(a);
  EXPECT_GE(hostDeviceViolations(), 1) << "waits for what nobody has signalled";
  begin(a);
  fill(1, a);
  const cudaGraph_t one = end(a);
  cudaGraph_t both = nullptr;
  cudaGraphCreate(&both, 0);
  cudaGraphAddChildGraphNode(&node, both, nullptr, 0, one);
  cudaGraphAddChildGraphNode(&node, both, nullptr, 0, one);
  executable(both);
  EXPECT_GE(hostDeviceViolations(), 1) << "two nodes write in no order";
}

}  // namespace
