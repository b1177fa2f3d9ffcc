// The host device's own rules, one by one, by CUDA's names. Whoever relies on a test that ran on it
// relies on these.
#include <gtest/gtest.h>

#include <thread>

#include "tests/host_device/host_device.h"

namespace {

constexpr auto kThreadLocal = cudaStreamCaptureModeThreadLocal;

class HostDevice : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(host_device::present()) << "to be run with the host device preloaded";
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc(reinterpret_cast<void**>(&device), 64);
    cudaHostAlloc(reinterpret_cast<void**>(&host), 64, 0);
  }
  void TearDown() override {
    host_device::delay(0);
    EXPECT_EQ(host_device::violations(), due);
  }
  void begin(cudaStream_t stream, cudaStreamCaptureMode mode = kThreadLocal) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  cudaGraph_t end(cudaStream_t stream, cudaError_t expected = cudaSuccess) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), expected);
    EXPECT_EQ(graph != nullptr, expected == cudaSuccess);
    return graph;
  }
  void end_invalid(cudaStream_t stream) { end(stream, cudaErrorStreamCaptureInvalidated); }
  cudaGraphExec_t executable(cudaGraph_t graph) {
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    return made;
  }
  cudaError_t fill(int value, cudaStream_t stream) {
    return cudaMemsetAsync(device, value, 4, stream);
  }
  cudaError_t fetch(cudaStream_t stream) {
    return cudaMemcpyAsync(host, device, 4, cudaMemcpyDefault, stream);
  }

  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  int *device = nullptr, *host = nullptr;
  int due = 0;  ///< violations
};

TEST_F(HostDevice, RefusesUnderCaptureWhatMayBeUnsafe) {
  void* memory = nullptr;
  int pageable[4] = {};
  const auto refused = [&](cudaError_t got) {
    EXPECT_EQ(got, cudaErrorStreamCaptureUnsupported);
    end_invalid(a);
  };
  begin(a), refused(cudaMalloc(&memory, 64));
  begin(a), refused(cudaHostAlloc(&memory, 64, 0));
  begin(a), refused(cudaFree(device));
  begin(a), refused(cudaStreamSynchronize(a));
  begin(a), refused(cudaStreamQuery(a));
  begin(a), refused(cudaDeviceSynchronize());
  begin(a), refused(cudaEventQuery(event));
  begin(a), refused(cudaMemcpyAsync(pageable, device, 16, cudaMemcpyDefault, a));
  begin(a, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  end(a);
}

TEST_F(HostDevice, AThreadLocalCaptureIsOneThreads) {
  void* memory = nullptr;
  begin(a);
  std::thread([&] { EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess); }).join();
  std::thread([&] { end(a, cudaErrorStreamCaptureWrongThread); }).join();
  end(a);
  begin(a, cudaStreamCaptureModeGlobal);
  std::thread([&] {
    EXPECT_EQ(cudaMalloc(&memory, 64), cudaErrorStreamCaptureUnsupported);
  }).join();
  end_invalid(a);
}

TEST_F(HostDevice, CapturesKeepToThemselves) {
  cudaEventRecord(event, b);
  begin(a);
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
  end_invalid(a);
  begin(a);
  cudaEventRecord(event, a);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  end_invalid(a);
  begin(a), begin(b);
  cudaEventRecord(event, a);
  EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaErrorStreamCaptureMerge);
  end_invalid(a), end_invalid(b);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, kThreadLocal), cudaErrorStreamCaptureUnsupported);
  end(a, cudaErrorIllegalState);
}

TEST_F(HostDevice, WhatForksMustJoin) {
  begin(a);
  cudaEventRecord(event, a);
  cudaStreamWaitEvent(b, event, 0);
  EXPECT_EQ(fill(1, b), cudaSuccess);
  cudaGraph_t none = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(b, &none), cudaErrorStreamCaptureUnmatched);
  end_invalid(a);
  begin(a);
  cudaEventRecord(event, a);
  cudaStreamWaitEvent(b, event, 0);
  EXPECT_EQ(fill(1, b), cudaSuccess);
  end(a, cudaErrorStreamCaptureUnjoined);
}

TEST_F(HostDevice, TheLegacyStreamWaitsForBlockingOnes) {
  cudaStream_t blocking = nullptr;
  cudaStreamCreateWithFlags(&blocking, cudaStreamDefault);
  begin(blocking);
  EXPECT_EQ(fill(0, nullptr), cudaErrorStreamCaptureImplicit);
  end_invalid(blocking);
  host_device::delay(2000);
  fill(1, blocking), fill(2, nullptr);
  EXPECT_EQ(fetch(nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(host[0], 0x02020202);
}

TEST_F(HostDevice, AGraphDoesAgainWhatItsForksDid) {
  cudaEvent_t joined = nullptr;
  cudaEventCreate(&joined);
  begin(a);
  fill(1, a);
  cudaEventRecord(event, a);
  cudaStreamWaitEvent(b, event, 0);
  fetch(b);
  cudaEventRecord(joined, b);
  cudaStreamWaitEvent(a, joined, 0);
  const cudaGraphExec_t graph = executable(end(a));
  for (int round = 0; round < 3; ++round) {
    host[0] = 0;
    EXPECT_EQ(cudaGraphLaunch(graph, a), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_EQ(host[0], 0x01010101);
  }
}

TEST_F(HostDevice, EventsMeasureAndOrder) {
  cudaEvent_t begun = nullptr, ended = nullptr;
  cudaEventCreate(&begun), cudaEventCreate(&ended);
  host_device::delay(3000);
  cudaEventRecord(begun, a);
  fill(3, a);
  cudaEventRecord(ended, a);
  EXPECT_EQ(cudaEventQuery(ended), cudaErrorNotReady);
  cudaStreamWaitEvent(b, ended, 0);
  fetch(b);
  cudaStreamSynchronize(b);
  EXPECT_EQ(host[0], 0x03030303);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begun, ended), cudaSuccess);
  EXPECT_GE(ms, 0);
  cudaEventRecord(event, a), cudaStreamSynchronize(a);
  EXPECT_EQ(cudaEventElapsedTime(&ms, begun, event), cudaErrorInvalidResourceHandle);
}

TEST_F(HostDevice, HasTheMemoryItSays) {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&memory, free - (1 << 20)), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(HostDevice, SaysWhatADeviceWouldNot) {
  const auto is_violation = [&](const char* what) {
    EXPECT_GE(host_device::violations(), 1) << what;
  };
  begin(a);
  fill(1, a);
  const cudaGraphExec_t graph = executable(end(a));
  host_device::delay(20000);
  fill(1, a), fill(2, b);
  is_violation("two streams write in no order");
  host_device::delay(0);
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
  EXPECT_GE(host_device::violations(), 1) << "waits for what nobody has signalled";
  begin(a);
  fill(1, a);
  const cudaGraph_t one = end(a);
  cudaGraph_t both = nullptr;
  cudaGraphCreate(&both, 0);
  cudaGraphAddChildGraphNode(&node, both, nullptr, 0, one);
  cudaGraphAddChildGraphNode(&node, both, nullptr, 0, one);
  executable(both);
  EXPECT_GE(host_device::violations(), 1) << "two nodes write in no order";
}

TEST_F(HostDevice, FailsWhereItIsTold) {
  const host_device::Held before = host_device::held();
  host_device::fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void *first = nullptr, *second = nullptr;
  EXPECT_EQ(cudaMalloc(&first, 64), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 64), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&second, 64), cudaSuccess);
  EXPECT_GT(host_device::held().device_bytes, before.device_bytes);
  cudaFree(first), cudaFree(second);
  EXPECT_EQ(host_device::held().device_bytes, before.device_bytes);
}

}  // namespace
