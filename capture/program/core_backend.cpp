#include "capture/eager.h"
#include "capture/program/program.h"
#include "capture/program/recording.h"

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

class CoreGraph final : public Graph {
 public:
  explicit CoreGraph(std::vector<GraphNode> nodes) : nodes_(std::move(nodes)) {}
  void launch() override {
    for (const GraphNode& node : nodes_)
      static_cast<const CoreRecording*>(node.recording)->program.run();
  }

 private:
  std::vector<GraphNode> nodes_;
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
                                           program::ProgramOptions{team_.get(), &late_, numerics_});
  }
  std::unique_ptr<Graph> assemble(const std::vector<GraphNode>& nodes) override {
    return std::make_unique<CoreGraph>(nodes);
  }
  void run(std::function<void()> body) override {
    synchronize();
    body();
  }
  void synchronize() override { late_.make(team_.get()); }
  std::int64_t scratch_bytes() const override { return arena_.bytes(); }

 private:
  const kernels::Numerics numerics_;
  program::Arena arena_;
  std::unique_ptr<kernels::Team> team_;  ///< null: the launching thread alone
  program::LateGradients late_;
};

}  // namespace

std::unique_ptr<Backend> make_core_backend(int threads,
                                           const std::function<void(int index)>& started,
                                           const kernels::Numerics& numerics) {
  return std::make_unique<CoreBackend>(threads, started, numerics);
}

}  // namespace millrace::capture
