// What a body did, operator by operator, to be done again without the body.
#pragma once

#include <functional>
#include <memory>

namespace millrace::capture {

/// Does on a core what a CUDA Graph does: repeats recorded operators on the tensors they were
/// recorded with, whatever the host would do by now. As there, what a body reads with item() can't
/// be recorded; memory that nobody holds once the body is done belongs to whoever is recorded next
/// (here it is spoiled at the end of each replay, and all that recording made is spoiled once); and
/// what the body does past LibTorch's operators is not repeated.
class OperatorTape {
 public:
  /// Runs `body` to note what it does. Throws std::runtime_error for what can't be recorded.
  explicit OperatorTape(const std::function<void()>& body);
  ~OperatorTape();
  void replay() const;

 private:
  struct Notes;
  std::unique_ptr<Notes> notes_;
};

}  // namespace millrace::capture
