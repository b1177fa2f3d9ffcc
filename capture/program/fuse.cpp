// Fusion and dead-node elimination.
#include <algorithm>
#include <optional>

#include "capture/program/node.h"

namespace millrace::program {
namespace {

using kernels::Activation, kernels::Function, kernels::Pass;

/// Operators whose results are always the same.
bool is_constant(const Node& node) {
  static const std::set<std::string> names = {
      "aten::ones", "aten::ones_like", "aten::full", "aten::full_like", "aten::scalar_tensor",
  };
  return node.kind == Kind::zero ||
         (node.kind == Kind::torch && names.count(node.call->name()) > 0);
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || lie_alike(a, b));
}

class Fuser {
 public:
  Fuser(std::vector<Node>& nodes, OwnMemory& own) : nodes_(nodes), own_(own) {}

  void run() {
    fold_constants();
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const std::size_t before = nodes_.size();
        changed |= activate(i) || mask(i) || through_sigmoid(i) || write_there(i) || accumulate(i);
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
  /// Nor reads it.
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
      if (!is_constant(nodes_[i])) continue;
      const at::Tensor made = nodes_[i].writes[0];
      const Range range = storage_range(made);
      bool written = false;
      for (std::size_t k = 0; k < nodes_.size(); ++k) written |= k != i && writes(k, range);
      if (written) continue;
      own_.remove(made);  // it stays constant
      erase(i);
    }
  }

  /// Makes node i apply `function` to its result, if a map of that function is the only user.
  /// \param right the function's other operand, if it must be this one.
  /// \returns the map's node, now removed; nothing if it has to stay.
  std::optional<Node> take_over(std::size_t i, Function function, const at::Tensor& right = {}) {
    Node& node = nodes_[i];
    const Place user = only_user(i, node.writes[0]);
    if (!user || !is_map(nodes_[*user], function)) return {};
    const Node next = nodes_[*user];
    if (!same_memory(next.reads[0], node.writes[0]) || !is_image(next.writes[0]) ||
        !untouched(i, *user, next.writes[0]))
      return {};
    if (next.reads.size() > 1 && (!is_image(next.reads[1]) || !unwritten(i, *user, next.reads[1]) ||
                                  (right.defined() && !same_memory(next.reads[1], right))))
      return {};
    node.writes = next.writes;
    erase(*user);
    return next;
  }

  bool activate(std::size_t i) {
    Node& node = nodes_[i];
    if (!is_pass(node, Pass::kForward) || node.convolution.activation != Activation::kNone)
      return false;
    const bool relu = take_over(i, Function::relu).has_value();
    if (!relu && !take_over(i, Function::sigmoid)) return false;
    node.convolution.activation = relu ? Activation::kRelu : Activation::kSigmoid;
    return true;
  }

  bool mask(std::size_t i) {
    Node& node = nodes_[i];
    if (!is_pass(node, Pass::kDataGradient) || node.convolution.masked) return false;
    const std::optional<Node> masks = take_over(i, Function::relu_gradient);
    if (!masks) return false;
    node.convolution.masked = true;
    node.reads.push_back(masks->reads[1]);
    return true;
  }

  bool through_sigmoid(std::size_t i) {
    Node& node = nodes_[i];
    if (node.kind != Kind::mse || !node.gradient || node.through_sigmoid) return false;
    node.through_sigmoid = take_over(i, Function::sigmoid_gradient, node.reads[1]).has_value();
    return node.through_sigmoid;
  }

  /// Computes a value that is only copied at the copy's destination.
  bool write_there(std::size_t i) {
    Node& node = nodes_[i];
    if (node.kind == Kind::torch || node.kind == Kind::update) return false;
    for (at::Tensor& made : node.writes) {
      const Place user = only_user(i, made);
      if (!user || nodes_[*user].kind != Kind::copy) continue;
      const Node& next = nodes_[*user];
      const at::Tensor there = next.writes[0];
      const bool any_layout = node.kind == Kind::copy;
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
    if (!is_pass(node, Pass::kWeightGradient) || node.convolution.accumulate) return false;
    std::vector<std::size_t> users;
    std::vector<at::Tensor> sums;
    for (const at::Tensor& made : node.writes) {
      if (!made.defined()) {
        sums.push_back(made);
        continue;
      }
      Place user = only_user(i, made);
      at::Tensor source = made;
      if (user && nodes_[*user].kind == Kind::copy) {  // to other strides
        users.push_back(*user);
        source = nodes_[*user].writes[0];
        user = only_user(*user, source);
      }
      if (!user || !is_map(nodes_[*user], Function::add)) return false;
      const Node& next = nodes_[*user];
      if (!same_memory(next.writes[0], next.reads[0]) || !same_memory(next.reads[1], source) ||
          !next.writes[0].is_contiguous() || !untouched(i, *user, next.writes[0]))
        return false;
      users.push_back(*user);
      sums.push_back(next.writes[0]);
    }
    node.convolution.accumulate = true;
    node.writes = sums;
    std::sort(users.rbegin(), users.rend());
    for (const std::size_t user : users) erase(user);
    return true;
  }

  /// Removes dead nodes.
  bool leave_out() {
    bool changed = false;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      bool wanted = nodes_[i].kind == Kind::update || nodes_[i].writes.empty();
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

void pair_gradients(std::vector<Node>& nodes) {
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    Node& data = nodes[i];
    const Node& weights = nodes[i + 1];
    if (!is_pass(data, Pass::kDataGradient) || !is_pass(weights, Pass::kWeightGradient) ||
        !same_memory(data.reads[0], weights.reads[0]) || !weights.writes[0].defined() ||
        data.convolution.input != weights.convolution.input ||
        data.convolution.kernel != weights.convolution.kernel ||
        !kernels::gradients_together(data.convolution))
      continue;
    data.convolution.pass = Pass::kGradients;
    data.convolution.accumulate = weights.convolution.accumulate;
    data.reads.insert(data.reads.begin() + 2, weights.reads[1]);
    data.writes.insert(data.writes.end(), weights.writes.begin(), weights.writes.end());
    nodes.erase(nodes.begin() + std::ptrdiff_t(i) + 1);
  }
}

}  // namespace millrace::program
