#include <algorithm>
#include <optional>

#include "capture/program/operations/convolution.h"

namespace millrace::program {
namespace {

class Fuser {
 public:
  Fuser(std::vector<Node>& nodes, Values& values) : nodes_(nodes), values_(values) {
    values_.link(nodes_);
  }

  void run() {
    fold_constants();
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (!is_erased(nodes_[i]))
          changed |= take_over(i) || write_there(i) || unite(i) || accumulate(i);
      }
      changed |= leave_out();
    }
    std::erase_if(nodes_, is_erased);
    values_.link(nodes_);
  }

 private:
  using Place = std::optional<std::size_t>;

  /// The only node that uses what `node` writes to the recording's own memory.
  Place only_user(std::size_t node, const at::Tensor& made) const {
    if (!values_.own(made)) return {};
    Place user;
    for (const Use& use : values_.of(made)->uses) {
      if (use.node == node) continue;
      if (use.writes || use.node < node || (user && *user != use.node)) return {};
      user = use.node;
    }
    return user;
  }
  void erase(std::size_t node) {
    values_.unlink(node, nodes_[node]);
    nodes_[node] = {};
  }

  void fold_constants() {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      if (!nodes_[i].operation.constant) continue;
      const at::Tensor made = nodes_[i].writes[0];
      const Value* const value = values_.of(made);
      if (value && std::ranges::any_of(value->uses,
                                       [&](const Use& use) { return use.writes && use.node != i; }))
        continue;
      values_.fix(made);  // it stays constant
      erase(i);
    }
  }

  /// Makes a node apply the function that alone uses its first result, if it can.
  bool take_over(std::size_t i) {
    Node& node = nodes_[i];
    if (!node.operation.take_over) return false;
    const at::Tensor made = node.writes[0];
    const Place user = only_user(i, made);
    const kernels::Map* const map = user ? as_map(nodes_[*user]) : nullptr;
    if (!map) return false;
    const Node& next = nodes_[*user];
    const at::Tensor right = next.reads.size() > 1 ? next.reads[1] : at::Tensor();
    if (!same_memory(next.reads[0], made) || !is_image(next.writes[0]) ||
        values_.used(next.writes[0], i + 1, *user) ||
        (right.defined() && (!is_image(right) || values_.written(right, i + 1, *user))))
      return false;
    values_.unlink(i, node);
    const bool taken = node.operation.take_over(node, map->function, right);
    if (taken) node.writes = next.writes;
    values_.link(i, node);
    if (taken) erase(*user);
    return taken;
  }

  /// Computes a value that is only copied at the copy's destination.
  bool write_there(std::size_t i) {
    Node& node = nodes_[i];
    if (node.operation.in_place) return false;
    for (std::size_t k = 0; k < node.writes.size(); ++k) {
      const at::Tensor made = node.writes[k];
      const Place user = only_user(i, made);
      if (!user || !nodes_[*user].operation.copy) continue;
      const Node& next = nodes_[*user];
      const at::Tensor there = next.writes[0];
      const bool any_layout = node.operation.copy;
      const auto is_there = [range = range_of(there)](const at::Tensor& tensor) {
        return tensor.defined() && range_of(tensor).overlaps(range);
      };
      if (!same_memory(next.reads[0], made) || !(any_layout || lie_alike(made, there)) ||
          values_.used(there, i + 1, *user) || std::ranges::any_of(node.reads, is_there))
        continue;
      erase(*user);
      values_.unlink(i, node);
      node.writes[k] = there;
      values_.link(i, node);
      return true;
    }
    return false;
  }

  /// Leaves out a copy whose source may have the destination's memory.
  bool unite(std::size_t i) {
    if (!nodes_[i].operation.copy) return false;
    const at::Tensor from = nodes_[i].reads[0], there = nodes_[i].writes[0];
    if (!lie_alike(from, there) || values_.used(there, 0, i) ||
        values_.used(there, i + 1, nodes_.size()) || !values_.unite(from, there))
      return false;
    erase(i);
    return true;
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
          !next.writes[0].is_contiguous() || values_.used(next.writes[0], i + 1, *user))
        return false;
      users.push_back(*user);
      sums.push_back(next.writes[0]);
    }
    gradient->convolution.accumulate = true;
    for (const std::size_t user : users) erase(user);
    values_.unlink(i, node);
    node.writes = sums;
    values_.link(i, node);
    return true;
  }

  /// Removes dead nodes.
  bool leave_out() {
    bool changed = false;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = nodes_[i];
      if (is_erased(nodes_[i]) || node.operation.update || node.writes.empty()) continue;
      if (std::ranges::any_of(node.writes, [&](const at::Tensor& made) { return wanted(i, made); }))
        continue;
      erase(i);
      changed = true;
    }
    return changed;
  }
  bool wanted(std::size_t node, const at::Tensor& made) const {
    const Value* const value = values_.of(made);
    return value && (!value->own || std::ranges::any_of(value->uses, [&](const Use& use) {
             return !use.writes && use.node != node;
           }));
  }

  std::vector<Node>& nodes_;
  Values& values_;
};

}  // namespace

void fuse(std::vector<Node>& nodes, Values& values) {
  Fuser(nodes, values).run();
}

}  // namespace millrace::program
