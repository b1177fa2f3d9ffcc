// The memory of a recording, and which nodes use it.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "capture/program/recording.h"

namespace millrace::program {

struct Node;

/// Bytes from `begin` up to `end`.
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};
/// What a tensor may touch.
Range range_of(const at::Tensor& tensor);

/// An operand or a result of a node.
struct Use {
  std::size_t node;  ///< index
  Range range;
  bool writes;
};

/// Memory of one storage, or of several that overlap.
struct Value {
  std::size_t id = 0;  ///< index in Values::all()
  Range range;
  c10::Storage storage;  ///< held, so that no other tensor gets the same address
  bool own = false;      ///< only the recording holds it: it may be moved or eliminated
  capture::Arena* kept_in = nullptr;  ///< where to move what others hold, too; null: it stays
  at::Tensor copy;                    ///< its copy, whose memory it may take; undefined: none
  bool united = false;                ///< it takes its copy's memory
  std::vector<Use> uses;              ///< in the order of the nodes
};

/// A recording's values.
class Values {
 public:
  Values(const std::vector<Call>& calls, const capture::KeptIn::Exceptions& exceptions);
  /// Adds what `calls` make, none of which anybody else holds.
  void add_made(const std::vector<Call>& calls);
  /// Adds memory that only the recording holds.
  void add(const at::Tensor& tensor);
  /// From now on its memory stays where it is.
  void fix(const at::Tensor& tensor);
  /// Gives a tensor the memory of its copy, if it may have it.
  bool unite(const at::Tensor& tensor, const at::Tensor& copy);

  /// Null for an undefined or empty tensor.
  const Value* of(const at::Tensor& tensor) const;
  bool own(const at::Tensor& tensor) const {
    const Value* const value = of(tensor);
    return value && value->own;
  }
  const std::deque<Value>& all() const { return all_; }

  /// Enters the uses of these nodes, and no others.
  void link(std::span<const Node> nodes);
  void link(std::size_t index, const Node& node);
  void unlink(std::size_t index, const Node& node);
  /// Whether a node in [begin, end) reads or writes any of the tensor's bytes.
  bool used(const at::Tensor& tensor, std::size_t begin, std::size_t end,
            bool only_written = false) const;
  bool written(const at::Tensor& tensor, std::size_t begin, std::size_t end) const {
    return used(tensor, begin, end, /*only_written=*/true);
  }

 private:
  Value& insert(const at::Tensor& tensor);
  Value* mine(const at::Tensor& tensor);  ///< of(), to change

  std::deque<Value> all_;                          ///< in the order of their first calls
  std::map<const char*, std::size_t> by_address_;  ///< indices by where they begin
};

}  // namespace millrace::program
