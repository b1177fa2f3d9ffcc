#include "capture/program/stage_programs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "capture/backend.h"

namespace millrace::program {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kEnough{40};  ///< of timing: large operators vary little

/// For a GPU, where a launch takes longer than most operations.
std::vector<capture::OperationInfo> timed_by_graphs(const Programs& step, c10::Device device,
                                                    int rounds) {
  constexpr int kInARow = 20;
  const std::unique_ptr<capture::Backend> backend = capture::make_graph_backend(device);
  std::vector<capture::OperationInfo> all;
  for (const auto& program : step) {
    std::vector<capture::OperationInfo> operations = program->operations();
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto recording = backend->record(0, [&] {
        for (int times = 0; times < kInARow; ++times) program->run_operation(i);
      });
      const auto graph = backend->assemble({{.recording = recording.get()}});
      std::int64_t& best = operations[i].best_ns;
      for (int round = 0; round < rounds; ++round) {
        graph->launch();
        backend->synchronize();
        const std::int64_t ns = graph->duration_ns() / kInARow;
        best = round == 0 ? ns : std::min(best, ns);
      }
      all.push_back(operations[i]);
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<Program> record_call(stages::Stage& stage, const std::function<void()>& body,
                                     Arena& arena, const ProgramOptions& options) {
  const stages::Tensors sums = stage.accumulated();
  stages::Tensors before;
  for (const at::Tensor& sum : sums) before.push_back(sum.clone());
  // Recording runs operators, too: it adds to the sums, and an update must reject them.
  stage.fill_gradients(std::numeric_limits<float>::quiet_NaN());
  auto program = std::make_unique<Program>(body, arena, options);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].copy_(before[i]);
  return program;
}

std::vector<capture::OperationInfo> timed(const Programs& step, c10::Device device, int rounds) {
  if (device.is_cuda()) return timed_by_graphs(step, device, rounds);
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    for (const auto& program : step) program->run_timed();
    if (round > 0 && Clock::now() - begin > kEnough) break;
  }
  std::vector<capture::OperationInfo> all;
  for (const auto& program : step)
    std::ranges::copy(program->operations(), std::back_inserter(all));
  return all;
}

}  // namespace millrace::program
