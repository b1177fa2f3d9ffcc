#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDAFunctions.h>

#include "capture/graph_cuda.h"
#include "capture/program/cuda/cuda_module.h"
#include "capture/program/cuda/launch_cuda.h"

namespace millrace::capture {

const CudaModule millrace_cuda = {
    .devices = [] { return int(c10::cuda::device_count()); },
    .device_name =
        [](int index) {
          cudaDeviceProp properties{};
          MILLRACE_CHECK_CUDA(cudaGetDeviceProperties(&properties, index));
          return std::string(properties.name);
        },
    .make_eager_backend = make_eager_stream,
    .make_graph_backend = make_stream,
    .reads = [](c10::Device a,
                c10::Device b) { return at::cuda::get_p2p_access(a.index(), b.index()); },
    .has_kernels = [](c10::Device d) { return gpu::missing_compiler(d.index()).empty(); },
    .prepare_call = program::prepare_launches,
    .prepare_convolution = program::launched_convolution,
    .choices = gpu::choices,
    .take_choices = gpu::take_choices,
};

}  // namespace millrace::capture
