#include <algorithm>
#include <optional>

#include "capture/program/operations/convolution.h"

namespace millrace::program {
namespace {

class Fuser {
 public:
  Fuser(std::vector<Node>& nodes, OwnMemory& own) : nodes_(nodes), own_(own) {}

  void run() {
    fold_constants();
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const std::size_t before = nodes_.size();
        changed |= take_over(i) || write_there(i) || accumulate(i);
        if (nodes_.size() != before) changed = true;
      }
      changed |= leave_out();
    }
  }

 private:
  using Place = std::optional<std::size_t>;

  bool reads(std::size_t node, const Range& range) const {
    return touches(nodes_[node].reads, range);
  }
  bool writes(std::size_t node, const Range& range) const {
    return touches(nodes_[node].writes, range);
  }
  /// Whether no node in (begin, end) writes it.
  bool unwritten(std::size_t begin, std::size_t end, const at::Tensor& tensor) const {
    const Range range = range_of(tensor);
    for (std::size_t i = begin + 1; i < end; ++i) {
      if (writes(i, range)) return false;
    }
    return true;
  }
  /// Whether no node in (begin, end) reads or writes it.
  bool untouched(std::size_t begin, std::size_t end, const at::Tensor& tensor) const {
    const Range range = range_of(tensor);
    for (std::size_t i = begin + 1; i < end; ++i) {
      if (reads(i, range)) return false;
    }
    return unwritten(begin, end, tensor);
  }
  /// The only node that uses what `node` writes to the recording's own memory.
  Place only_user(std::size_t node, const at::Tensor& made) const {
    if (!made.defined() || !own_.holds(made)) return {};
    const Range range = storage_range(made);
    Place user;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (i == node) continue;
      if (writes(i, range)) return {};
      if (!reads(i, range)) continue;
      if (user || i < node) return {};
      user = i;
    }
    return user;
  }
  void erase(std::size_t node) { nodes_.erase(nodes_.begin() + std::ptrdiff_t(node)); }

  void fold_constants() {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      if (!nodes_[i].operation.constant) continue;
      const at::Tensor made = nodes_[i].writes[0];
      const Range range = storage_range(made);
      bool written = false;
      for (std::size_t k = 0; k < nodes_.size(); ++k) written |= k != i && writes(k, range);
      if (written) continue;
      own_.remove(made);  // it stays constant
      erase(i);
    }
  }

  /// Makes a node apply the function that alone uses its first result, if it can.
  bool take_over(std::size_t i) {
    Node& node = nodes_[i];
    if (!node.operation.take_over) return false;
    const Place user = only_user(i, node.writes[0]);
    const kernels::Map* const map = user ? as_map(nodes_[*user]) : nullptr;
    if (!map) return false;
    const Node& next = nodes_[*user];
    const at::Tensor right = next.reads.size() > 1 ? next.reads[1] : at::Tensor();
    if (!same_memory(next.reads[0], node.writes[0]) || !is_image(next.writes[0]) ||
        !untouched(i, *user, next.writes[0]) ||
        (right.defined() && (!is_image(right) || !unwritten(i, *user, right))) ||
        !node.operation.take_over(node, map->function, right))
      return false;
    node.writes = next.writes;
    erase(*user);
    return true;
  }

  /// Computes a value that is only copied at the copy's destination.
  bool write_there(std::size_t i) {
    Node& node = nodes_[i];
    if (nodes_[i].operation.in_place) return false;
    for (at::Tensor& made : node.writes) {
      const Place user = only_user(i, made);
      if (!user || !nodes_[*user].operation.copy) continue;
      const Node& next = nodes_[*user];
      const at::Tensor there = next.writes[0];
      const bool any_layout = nodes_[i].operation.copy;
      if (!same_memory(next.reads[0], made) || !(any_layout || lie_alike(made, there)) ||
          !untouched(i, *user, there))
        continue;
      if (touches(node.reads, range_of(there))) continue;
      made = there;
      erase(*user);
      return true;
    }
    return false;
  }

  /// Makes weight gradients that are only added to others accumulate in place.
  bool accumulate(std::size_t i) {
    Node& node = nodes_[i];
    Convolve* const gradient = as_pass(node, kernels::Pass::kWeightGradient);
    if (!gradient || gradient->convolution.accumulate) return false;
    std::vector<std::size_t> users;
    std::vector<at::Tensor> sums;
    for (const at::Tensor& made : node.writes) {
      if (!made.defined()) {
        sums.push_back(made);
        continue;
      }
      Place user = only_user(i, made);
      at::Tensor source = made;
      if (user && nodes_[*user].operation.copy) {  // to other strides
        users.push_back(*user);
        source = nodes_[*user].writes[0];
        user = only_user(*user, source);
      }
      const kernels::Map* const map = user ? as_map(nodes_[*user]) : nullptr;
      if (!map || map->function != kernels::Function::add) return false;
      const Node& next = nodes_[*user];
      if (!same_memory(next.writes[0], next.reads[0]) || !same_memory(next.reads[1], source) ||
          !next.writes[0].is_contiguous() || !untouched(i, *user, next.writes[0]))
        return false;
      users.push_back(*user);
      sums.push_back(next.writes[0]);
    }
    gradient->convolution.accumulate = true;
    node.writes = sums;
    std::sort(users.rbegin(), users.rend());
    for (const std::size_t user : users) erase(user);
    return true;
  }

  /// Removes dead nodes.
  bool leave_out() {
    bool changed = false;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      bool wanted = nodes_[i].operation.update || nodes_[i].writes.empty();
      for (const at::Tensor& made : nodes_[i].writes) {
        if (!made.defined()) continue;
        wanted |= !own_.holds(made);
        for (std::size_t k = 0; k < nodes_.size() && !wanted; ++k)
          wanted |= k != i && reads(k, storage_range(made));
      }
      if (wanted) continue;
      erase(i);
      changed = true;
    }
    return changed;
  }

  std::vector<Node>& nodes_;
  OwnMemory& own_;
};

}  // namespace

void fuse(std::vector<Node>& nodes, OwnMemory& own) {
  Fuser(nodes, own).run();
}

}  // namespace millrace::program
