#include "capture/program/program_stage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>

#include "capture/backend.h"

namespace millrace::program {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kEnough{40};  ///< of timing: large operators vary little

void copy(const stages::Tensors& from, const stages::Tensors& to) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

stages::Tensors copies(const stages::Tensors& tensors) {
  const c10::NoGradGuard no_grad;
  stages::Tensors made;
  for (const at::Tensor& tensor : tensors) made.push_back(tensor.detach().clone());
  return made;
}

/// For a GPU, where a launch takes longer than most operations.
std::vector<capture::OperationInfo> timed_by_graphs(const std::vector<Program*>& step,
                                                    c10::Device device, int rounds) {
  constexpr int kInARow = 20;
  const std::unique_ptr<capture::Backend> backend = capture::make_graph_backend(device);
  std::vector<capture::OperationInfo> all;
  for (Program* program : step) {
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

ProgramStage::ProgramStage(stages::Stage stage, int places, int count,
                           const ProgramOptions& options)
    : Stage(std::move(stage)),
      count_(count),
      options_(options),
      arena_(parameters().flat().device()),
      places_(places),
      free_(std::make_shared<std::vector<int>>()),
      rate_(at::ones({}, at::TensorOptions(parameters().flat().device()).dtype(at::kDouble))),
      skipped_(at::zeros({}, parameters().flat().device())) {}

ProgramStage::ProgramStage(ProgramStage&&) noexcept = default;
ProgramStage::~ProgramStage() = default;

void ProgramStage::record_all(const stages::Tensors& inputs, const at::Tensor& target) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    place.inputs = copies(inputs);
    if (target.defined())
      place.target = target.is_same(inputs[0]) ? place.inputs[0] : target.clone();
    for (int buffer = 0; buffer < options().versions; ++buffer) record(place, buffer);
    free_->push_back(int(i));
  }
  const int versions = options().versions;
  // Starts at the buffer that holds the weights: each rejected update copies them to the next.
  for (int from = 0; from < versions; ++from) {
    const int to = (from + 1) % versions;
    fill_gradients(std::numeric_limits<float>::quiet_NaN());
    updates_[to] = std::make_unique<Program>(
        [&] { Stage::update({.from = from, .to = to, .count = count_}, rate_, skipped_); }, arena_,
        options_);
  }
  fill_gradients(0);
  skipped_.zero_();
}

void ProgramStage::record(Place& place, int buffer) {
  Recorded& made = place.recorded[buffer];
  const auto record = [&](Part part, bool first, const std::function<void()>& body) {
    made.programs[{part, first}] = std::make_unique<Program>(body, arena_, options_);
  };
  record(Part::forward, true,
         [&] { made.kept = Stage::forward(place.inputs, place.target, buffer); });
  made.outputs = made.kept.outputs;  // a recomputation makes new ones
  made.loss = made.kept.loss;
  if (supervised()) {
    record(Part::backward_local, true,
           [&] { Stage::backward_local(made.kept, {.first = true, .retain = true}); });
  }
  if (options().recompute) record(Part::recompute, true, [&] { Stage::recompute(made.kept); });
  if (place.gradients.empty()) place.gradients = copies(made.kept.outputs);
  const bool split = options().split;
  if (split) {  // once: the weights' part reads what this leaves
    record(Part::backward_input, true, [&] {
      made.made =
          Stage::backward_input(made.kept, place.gradients, {.first = true, .retain = true});
    });
  }
  for (const bool first : {true, false}) {
    record(split ? Part::backward_weight : Part::backward, first, [&] {
      const stages::Adding adding{.first = first, .retain = true};
      if (split) return Stage::backward_weight(made.kept, adding);
      const stages::Tensors found = Stage::backward(made.kept, place.gradients, adding);
      const c10::NoGradGuard no_grad;
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (made.made.size() <= i) made.made.push_back(at::empty_like(found[i]));
        made.made[i].copy_(found[i]);
      }
    });
  }
}

ProgramStage::Activations ProgramStage::forward(const stages::Tensors& inputs,
                                                const at::Tensor& target, int buffer) {
  if (updates_.empty()) record_all(inputs, target);
  if (free_->empty()) throw std::logic_error("more samples under way than there are places");
  Activations kept;
  kept.place = std::shared_ptr<int>(new int(free_->back()), [free = free_](int* place) {
    free->push_back(*place);
    delete place;
  });
  free_->pop_back();
  kept.buffer = buffer;
  Place& place = places_[*kept.place];
  copy(inputs, place.inputs);
  if (target.defined()) copy({target}, {place.target});
  Recorded& recorded = place.recorded[kept.buffer];
  recorded.programs.at({Part::forward, true})->run();
  kept.outputs = copies(recorded.outputs);
  if (recorded.loss.defined()) kept.loss = recorded.loss.clone();
  return kept;
}

stages::Tensors ProgramStage::run(Part part, Activations& kept, const stages::Tensors& gradients,
                                  bool first) {
  Place& place = places_[*kept.place];
  Recorded& recorded = place.recorded[kept.buffer];
  if (!gradients.empty()) copy(gradients, place.gradients);
  recorded.programs.at({part, first})->run();
  return part == Part::backward || part == Part::backward_input ? copies(recorded.made)
                                                                : stages::Tensors();
}

bool ProgramStage::update(const stages::Change& change, double rate) {
  if (change.count != count_) throw std::logic_error("an update that was not recorded");
  const c10::NoGradGuard no_grad;
  rate_.fill_(rate);
  const float before = skipped_.item<float>();
  updates_.at(change.to)->run();
  return skipped_.item<float>() == before;
}

std::vector<capture::OperationInfo> ProgramStage::operations(int rounds) {
  std::vector<Program*> step;
  for (const auto& [key, program] : places_.at(0).recorded.at(0).programs) {
    if (key.second) step.push_back(program.get());
  }
  step.push_back(updates_.at(0).get());
  if (arena_.device().is_cuda()) return timed_by_graphs(step, arena_.device(), rounds);
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    for (Program* program : step) program->run_timed();
    if (round > 0 && Clock::now() - begin > kEnough) break;
  }
  std::vector<capture::OperationInfo> all;
  for (const Program* program : step) {
    for (const capture::OperationInfo& info : program->operations()) all.push_back(info);
  }
  return all;
}

}  // namespace millrace::program
