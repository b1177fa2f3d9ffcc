#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <stdexcept>

#include "capture/backend.h"

namespace millrace::capture {

/// Runs bodies at once on the calling thread. Used as is on a core.
class EagerBackend : public Backend {
 public:
  bool records() const override { return false; }
  bool defers() const override { return false; }
  std::unique_ptr<Event> make_event() override { refuse(); }
  std::unique_ptr<Recording> record(int, std::function<void()>) override { refuse(); }
  std::unique_ptr<Graph> assemble(const std::vector<GraphNode>&) override { refuse(); }
  void run(std::function<void()> body) override { body(); }
  void copy(at::Tensor& to, const at::Tensor& from) override {
    const c10::NoGradGuard no_grad;
    to.copy_(from);
  }
  void synchronize() override {}

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("an eager backend records nothing"); }
};

}  // namespace millrace::capture
