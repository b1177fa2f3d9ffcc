#include <utility>

#include "capture/eager.h"
#include "capture/program/program.h"
#include "capture/program/recording.h"
#include "capture/ranges.h"

namespace millrace::capture {
namespace {

class CoreRecording final : public Recording {
 public:
  CoreRecording(const std::function<void()>& body, program::Arena& arena,
                const program::ProgramOptions& options)
      : program(body, arena, options) {
    operations = program.operations();
  }
  mutable program::Program program;
};

/// Runs programs in order; an update computes the large gradients that the program right before it
/// deferred. Invisible outside: anything else computes them first.
class Sequence {
 public:
  void run(program::Program& next) {
    if (operation_watch) {  // which expects each operation in its place
      catch_up();
      return next.run();
    }
    if (behind_ && next.run_with(*behind_)) {
      behind_ = nullptr;
      return;
    }
    catch_up();
    if (next.run_early()) behind_ = &next;
  }
  void catch_up() {
    if (behind_) std::exchange(behind_, nullptr)->make_late();
  }

 private:
  program::Program* behind_ = nullptr;  ///< its late gradients are pending
};

class CoreGraph final : public Graph {
 public:
  CoreGraph(std::vector<GraphNode> nodes, Sequence& sequence)
      : nodes_(std::move(nodes)), sequence_(sequence) {}
  void launch() override {
    for (const GraphNode& node : nodes_)
      sequence_.run(static_cast<const CoreRecording*>(node.recording)->program);
  }

 private:
  std::vector<GraphNode> nodes_;
  Sequence& sequence_;
};

/// Unrecorded work runs as in an eager backend.
class CoreBackend final : public EagerBackend {
 public:
  CoreBackend(int threads, const std::function<void(int)>& started,
              const kernels::Numerics& numerics)
      : numerics_(numerics) {
    if (threads > 1) team_ = std::make_unique<kernels::Team>(threads, started);
  }
  bool records() const override { return true; }
  std::unique_ptr<Recording> record(int, std::function<void()> body) override {
    program::run_dry(body);  // count bytes here: a recording keeps all it allocates
    return std::make_unique<CoreRecording>(body, arena_,
                                           program::ProgramOptions{team_.get(), numerics_});
  }
  std::unique_ptr<Graph> assemble(const std::vector<GraphNode>& nodes) override {
    return std::make_unique<CoreGraph>(nodes, sequence_);
  }
  void run(std::function<void()> body) override {
    sequence_.catch_up();
    body();
  }
  void synchronize() override { sequence_.catch_up(); }
  std::int64_t scratch_bytes() const override { return arena_.bytes(); }

 private:
  const kernels::Numerics numerics_;
  program::Arena arena_;
  std::unique_ptr<kernels::Team> team_;  ///< null: the launching thread alone
  Sequence sequence_;
};

}  // namespace

std::unique_ptr<Backend> make_core_backend(int threads,
                                           const std::function<void(int index)>& started,
                                           const kernels::Numerics& numerics) {
  return std::make_unique<CoreBackend>(threads, started, numerics);
}

}  // namespace millrace::capture
