// Lowers LibTorch's operators to nodes.
#include <ATen/ATen.h>

#include <map>
#include <set>

#include "capture/program/kernels/depthwise.h"
#include "capture/program/node.h"

namespace millrace::program {

Range range_of(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return {begin, begin};
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {begin, begin + (last + 1) * std::int64_t(tensor.itemsize())};
}

Range storage_range(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.storage().data());
  return {begin, begin + tensor.storage().nbytes()};
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && (tensor.is_cpu() || tensor.is_cuda()) &&
         tensor.is_non_overlapping_and_dense();
}

at::MemoryFormat image_format(c10::Device device) {
  return device.is_cuda() ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
}

bool is_image(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.dim() == 4 && tensor.size(0) == 1 &&
         tensor.is_contiguous(image_format(tensor.device()));
}

kernels::Layout layout_of(const at::Tensor& tensor) {
  return {
      .height = int(tensor.size(2)), .width = int(tensor.size(3)), .channels = int(tensor.size(1))};
}

bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  return is_dense(a) && is_dense(b) && a.device() == b.device() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || (is_image(a) && is_image(b)) ||
          (a.is_contiguous() && b.is_contiguous()));
}

OwnMemory::OwnMemory(const std::vector<Call>& calls) {
  std::set<const c10::StorageImpl*> seen;
  std::map<const c10::StorageImpl*, std::size_t> held;
  std::vector<at::Tensor> made;
  for (const Call& call : calls) {
    each_tensor(call.arguments, [&](const at::Tensor& t) {
      seen.insert(storage(t));
      ++held[storage(t)];
    });
    each_tensor(call.results, [&](const at::Tensor& t) {
      ++held[storage(t)];
      if (seen.insert(storage(t)).second) made.push_back(t);
    });
  }
  for (const at::Tensor& tensor : made) {
    // `made` shares the tensor, not its storage: one hold more a tensor object, which is the
    // call's.
    if (std::size_t(tensor.storage().use_count()) == held.at(storage(tensor))) add(tensor);
  }
}

namespace {

const at::Tensor& tensor(const Call& call, std::size_t argument) {
  return call.arguments[argument].toTensor();
}
const at::Tensor& result(const Call& call, std::size_t index = 0) {
  return call.results[index].toTensor();
}

/// Whether it could be an image, laid out otherwise.
bool is_picture(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.dim() == 4 && tensor.size(0) == 1;
}

/// Whether each of a list's numbers, one or one a dimension, is `value`.
bool all_are(const c10::IValue& list, std::int64_t value) {
  for (const std::int64_t number : list.toIntVector()) {
    if (number != value) return false;
  }
  return true;
}

/// Operators whose results have no values yet.
bool only_allocates(const Call& call) {
  static const std::set<std::string> names = {"aten::empty", "aten::empty_like",
                                              "aten::empty_strided", "aten::new_empty",
                                              "aten::new_empty_strided"};
  return names.count(call.name()) > 0;
}

/// Whether it only makes a view.
bool only_names(const Call& call) {
  const c10::FunctionSchema& schema = call.operation.schema();
  if (schema.is_mutable() || call.results.empty()) return false;
  for (const c10::Argument& returned : schema.returns()) {
    if (!returned.alias_info()) return false;
  }
  return true;
}

class Translation {
 public:
  Translation(OwnMemory& own, bool on_gpu) : own_(own), on_gpu_(on_gpu) {}

  std::vector<Node> run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      if (only_allocates(call) || only_names(call)) continue;
      call_ = &call;
      const auto rule = rules().find(call.name());
      const bool known = rule != rules().end() && (!on_gpu_ || rule->second.on_gpu);
      if (!known || !(this->*rule->second.translate)(call)) left(call);
    }
    return std::move(nodes_);
  }

 private:
  /// Adds what the call comes to; false, and nothing is added, if there are no kernels for it.
  struct Rule {
    bool (Translation::*translate)(const Call& call);
    bool on_gpu = false;  ///< a GPU has such kernels, too
  };
  static const std::map<std::string, Rule>& rules();

  Node& add(Kind kind, std::vector<at::Tensor> reads, std::vector<at::Tensor> writes) {
    for (const at::Tensor& written : writes) {
      if (!written.defined()) continue;
      std::erase_if(images_, [&](const auto& entry) {
        return range_of(entry.second.first).overlaps(range_of(written));
      });
    }
    nodes_.push_back(
        {.kind = kind, .call = call_, .reads = std::move(reads), .writes = std::move(writes)});
    return nodes_.back();
  }

  /// Memory of the program's own.
  at::Tensor own(at::IntArrayRef sizes, at::MemoryFormat format, c10::Device device) {
    const at::Tensor made =
        at::empty(sizes, at::TensorOptions(at::kFloat).device(device).memory_format(format));
    own_.add(made);
    return made;
  }

  // Images of pictures that lie otherwise: kernels read and write those, and copies keep the
  // pictures, which are left out again if nobody else reads them.

  /// `tensor` as an image, to read.
  at::Tensor read(const at::Tensor& tensor) {
    if (is_image(tensor)) return tensor;
    const auto found = images_.find(tensor.const_data_ptr());
    if (found != images_.end() && found->second.first.sizes() == tensor.sizes())
      return found->second.second;
    const at::Tensor image = own(tensor.sizes(), image_format(tensor.device()), tensor.device());
    add(Kind::copy, {tensor}, {image});
    images_[tensor.const_data_ptr()] = {tensor, image};
    return image;
  }
  /// An image for what `tensor` is to hold; to be followed by written().
  at::Tensor image_for(const at::Tensor& tensor) {
    return is_image(tensor) ? tensor
                            : own(tensor.sizes(), image_format(tensor.device()), tensor.device());
  }
  void written(const at::Tensor& tensor, const at::Tensor& image) {
    if (tensor.is_same(image)) return;
    add(Kind::copy, {image}, {tensor});
    images_[tensor.const_data_ptr()] = {tensor, image};
  }

  /// The LibTorch operator that it was.
  void left(const Call& call) {
    std::vector<at::Tensor> reads, writes;
    each_tensor(call.arguments, [&](const at::Tensor& t) { reads.push_back(t); });
    each_tensor(call.results, [&](const at::Tensor& t) { writes.push_back(t); });
    const std::vector<c10::Argument>& arguments = call.operation.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite()) continue;
      each_tensor({call.arguments[i]}, [&](const at::Tensor& t) { writes.push_back(t); });
    }
    add(Kind::torch, std::move(reads), std::move(writes));
  }

  static constexpr std::int64_t kLargestOnGpu = 31;  ///< kernel: its sums fill a thread's registers

  /// Whether it is one that kernels know; `first`: the place of stride, before padding, dilation,
  /// transposed, output_padding, groups.
  static bool known_convolution(const at::Tensor& input, const at::Tensor& weight, const Call& call,
                                std::size_t first) {
    if (!is_picture(input) || weight.dim() != 4) return false;
    const std::int64_t kernel = weight.size(2);
    if (weight.is_cuda() && kernel > kLargestOnGpu) return false;
    const auto& a = call.arguments;
    return weight.is_contiguous() && is_dense(weight) && kernel % 2 == 1 &&
           weight.size(3) == kernel && all_are(a[first], a[first].toIntVector()[0]) &&
           all_are(a[first + 1], kernel / 2) && all_are(a[first + 2], 1) &&
           !a[first + 3].toBool() &&
           (a[first + 5].toInt() == 1 || is_depthwise(input, weight, call, first));
  }
  /// Whether each channel is convolved by itself, by kernels that a core has.
  static bool is_depthwise(const at::Tensor& input, const at::Tensor& weight, const Call& call,
                           std::size_t first) {
    const std::int64_t groups = call.arguments[first + 5].toInt();
    return groups > 1 && groups == input.size(1) && groups == weight.size(0) && input.is_cpu() &&
           weight.size(2) <= kernels::kLargestDepthwise;
  }

  static kernels::Convolution described(kernels::Pass pass, const at::Tensor& input,
                                        const at::Tensor& output, const at::Tensor& weight,
                                        const c10::IValue& stride) {
    return {.pass = pass,
            .input = layout_of(input),
            .output = layout_of(output),
            .kernel = int(weight.size(2)),
            .stride = int(stride.toIntVector()[0])};
  }

  // convolution(input, weight, bias?, stride, ...)
  bool convolution(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &w = tensor(call, 1), &y = result(call);
    if (!known_convolution(x, w, call, 3) || !is_picture(y)) return false;
    std::vector<at::Tensor> reads = {read(x), w};
    if (!call.arguments[2].isNone() && tensor(call, 2).defined()) reads.push_back(tensor(call, 2));
    const at::Tensor image = image_for(y);
    const Kind kind = is_depthwise(x, w, call, 3) ? Kind::depthwise : Kind::convolution;
    add(kind, std::move(reads), {image}).convolution =
        described(kernels::Pass::kForward, x, y, w, call.arguments[3]);
    written(y, image);
    return true;
  }

  // convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
  bool convolution_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &w = tensor(call, 2);
    const at::Tensor &dx = result(call, 0), &dw = result(call, 1), &db = result(call, 2);
    if (!known_convolution(x, w, call, 4) || !is_picture(dy)) return false;
    if (db.defined() && !dw.defined()) return false;
    const at::Tensor gradient = read(dy);
    const bool depthwise = is_depthwise(x, w, call, 4);
    if (dx.defined()) {
      const at::Tensor image = image_for(dx);
      add(depthwise ? Kind::depthwise : Kind::data_gradient, {gradient, w}, {image}).convolution =
          described(kernels::Pass::kDataGradient, x, dy, w, call.arguments[4]);
      written(dx, image);
    }
    if (dw.defined()) {
      const at::Tensor plain =
          dw.is_contiguous() ? dw : own(dw.sizes(), at::MemoryFormat::Contiguous, dw.device());
      add(depthwise ? Kind::depthwise : Kind::weight_gradient, {gradient, read(x)}, {plain, db})
          .convolution = described(kernels::Pass::kWeightGradient, x, dy, w, call.arguments[4]);
      if (!plain.is_same(dw)) add(Kind::copy, {plain}, {dw});
    }
    return true;
  }

  // Linear layers are convolutions of kernel 1 over a picture with a row's numbers in each pixel.

  static bool is_matrix(const at::Tensor& tensor) { return is_dense(tensor) && tensor.dim() == 2; }
  /// A matrix's rows as the pixels of an image.
  static at::Tensor as_pixels(const at::Tensor& rows) {
    const std::int64_t pixels = rows.size(0), channels = rows.size(1);
    return rows.as_strided({1, channels, 1, pixels}, {rows.numel(), 1, rows.numel(), channels});
  }
  static kernels::Convolution pointwise(kernels::Pass pass, const at::Tensor& input,
                                        const at::Tensor& output) {
    return {.pass = pass, .input = layout_of(input), .output = layout_of(output)};
  }

  /// a times b, of which the memory's order says what they are: of samples [T,C] and weights [N,C],
  /// a layer's output is x w', its input's gradient dy w, its weights' dy' x.
  bool product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
               const at::Tensor& made) {
    if (!is_matrix(a) || !is_matrix(b) || !is_matrix(made) || !made.is_contiguous()) return false;
    const at::Tensor a_turned = a.t(), b_turned = b.t();
    if (!bias.defined() && a_turned.is_contiguous() && b.is_contiguous() &&
        (a.size(1) == 1 || !a.is_contiguous())) {
      const at::Tensor dy = as_pixels(a_turned), x = as_pixels(b);
      add(Kind::weight_gradient, {dy, x}, {made, {}}).convolution =
          pointwise(kernels::Pass::kWeightGradient, x, dy);
      return true;
    }
    if (!a.is_contiguous()) return false;
    const at::Tensor from = as_pixels(a), to = as_pixels(made);
    if (b_turned.is_contiguous()) {
      std::vector<at::Tensor> reads = {from, b_turned};
      if (bias.defined()) reads.push_back(bias);
      add(Kind::convolution, std::move(reads), {to}).convolution =
          pointwise(kernels::Pass::kForward, from, to);
      return true;
    }
    if (bias.defined() || !b.is_contiguous()) return false;
    add(Kind::data_gradient, {from, b}, {to}).convolution =
        pointwise(kernels::Pass::kDataGradient, to, from);
    return true;
  }
  bool product(const Call& call) {
    return product(tensor(call, 0), tensor(call, 1), {}, result(call));
  }
  // addmm(bias, a, b, beta, alpha)
  bool product_and_bias(const Call& call) {
    const at::Tensor &bias = tensor(call, 0), &made = result(call);
    return call.arguments[3].toScalar().toDouble() == 1 &&
           call.arguments[4].toScalar().toDouble() == 1 && is_dense(bias) && bias.dim() == 1 &&
           bias.size(0) == made.size(1) && product(tensor(call, 1), tensor(call, 2), bias, made);
  }

  /// One function of each element of `operands`.
  bool elementwise(Kind kind, std::vector<at::Tensor> operands, const at::Tensor& made) {
    bool as_they_lie = true, as_images = is_picture(made);
    for (const at::Tensor& operand : operands) {
      as_they_lie &= lie_alike(operand, made) && images_.count(operand.const_data_ptr()) == 0;
      as_images &= is_picture(operand) && operand.sizes() == made.sizes();
    }
    if (as_they_lie) {
      add(kind, std::move(operands), {made});
      return true;
    }
    if (!as_images) return false;
    for (at::Tensor& operand : operands) operand = read(operand);
    const at::Tensor image = image_for(made);
    add(kind, std::move(operands), {image});
    written(made, image);
    return true;
  }

  bool relu(const Call& call) { return elementwise(Kind::relu, {tensor(call, 0)}, result(call)); }
  bool sigmoid(const Call& call) {
    return elementwise(Kind::sigmoid, {tensor(call, 0)}, result(call));
  }
  bool threshold_backward(const Call& call) {
    return call.arguments[2].toScalar().toDouble() == 0 &&
           elementwise(Kind::relu_mask, {tensor(call, 0), tensor(call, 1)}, result(call));
  }
  bool sigmoid_backward(const Call& call) {
    return elementwise(Kind::sigmoid_gradient, {tensor(call, 0), tensor(call, 1)}, result(call));
  }

  bool sum(const Call& call) {
    if (!call.arguments[1].isTensor() || call.arguments[2].toScalar().toDouble() != 1) return false;
    const at::Tensor &a = tensor(call, 0), &b = tensor(call, 1), &made = result(call);
    if (!is_dense(a) || !is_dense(b)) return false;
    if (!on_gpu_ && is_picture(a) && is_picture(made) && is_of_channels(b, a) &&
        b.sizes() != a.sizes()) {
      const at::Tensor from = read(a), image = image_for(made);
      add(Kind::add_to_channels, {from, b}, {image});
      written(made, image);
      return true;
    }
    if (a.sizes() != b.sizes() || !lie_alike(a, made)) return false;
    add(Kind::add, {a, b}, {made});
    return true;
  }

  /// Whether it is a number for each channel of `picture`.
  static bool is_of_channels(const at::Tensor& tensor, const at::Tensor& picture) {
    return tensor.dim() == 4 && tensor.size(1) == picture.size(1) &&
           tensor.numel() == tensor.size(1);
  }

  // sum(input, dim[], keepdim, dtype?)
  bool channel_sums(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &made = result(call);
    if (!is_dense(made) || !call.arguments[3].isNone()) return false;
    const bool of_rows = is_matrix(x) && x.is_contiguous() && made.numel() == x.size(1) &&
                         all_are(call.arguments[1], 0);
    if (!of_rows && !(is_picture(x) && is_of_channels(made, x))) return false;
    const at::Tensor from = of_rows ? as_pixels(x) : read(x);
    add(Kind::channel_sums, {from}, {made});
    return true;
  }

  // add_up(part, reducer, place)
  bool add_up(const Call& call) {
    const at::Tensor &part = tensor(call, 0), &made = result(call);
    if (!is_picture(part) || !is_picture(made)) return false;
    const at::Tensor from = read(part), image = image_for(made);
    add(Kind::add_up, {from}, {image});
    written(made, image);
    return true;
  }

  static bool is_mean(const c10::IValue& reduction) {
    return reduction.toInt() == at::Reduction::Mean;
  }
  bool mse_loss(const Call& call) {
    const at::Tensor &prediction = tensor(call, 0), &target = tensor(call, 1);
    if (!is_picture(prediction) || !is_picture(target) || prediction.sizes() != target.sizes() ||
        !is_mean(call.arguments[2]))
      return false;
    const at::Tensor from = read(prediction), to = read(target);
    add(Kind::mse, {from, to}, {result(call)});
    return true;
  }
  bool mse_loss_backward(const Call& call) {
    const at::Tensor &scale = tensor(call, 0), &prediction = tensor(call, 1),
                     &target = tensor(call, 2), &made = result(call);
    if (scale.numel() != 1 || !is_dense(scale) || !is_picture(prediction) || !is_picture(target) ||
        !is_picture(made) || prediction.sizes() != target.sizes() || !is_mean(call.arguments[3]))
      return false;
    const at::Tensor from = read(prediction), to = read(target), image = image_for(made);
    add(Kind::mse_gradient, {scale, from, to}, {image});
    written(made, image);
    return true;
  }

  /// Undefined where there is none.
  static at::Tensor optional(const Call& call, std::size_t argument) {
    return call.arguments[argument].isNone() ? at::Tensor() : tensor(call, argument);
  }
  static bool is_plain(const at::Tensor& tensor) {
    return !tensor.defined() || (is_dense(tensor) && tensor.is_contiguous());
  }

  // native_group_norm(input, weight?, bias?, N, C, HxW, groups, eps)
  bool group_norm(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
    const at::Tensor weight = optional(call, 1), bias = optional(call, 2);
    if (!is_picture(x) || !is_picture(y) || !is_plain(weight) || !is_plain(bias)) return false;
    const at::Tensor from = read(x), image = image_for(y);
    add(Kind::group_norm, {from, weight, bias}, {image, result(call, 1), result(call, 2)});
    written(y, image);
    return true;
  }

  // native_group_norm_backward(gradient, input, mean, rstd, weight?, N, C, HxW, groups, mask)
  bool group_norm_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                     &dw = result(call, 1), &db = result(call, 2);
    const at::Tensor weight = optional(call, 4);
    if (!is_picture(dy) || !is_picture(x) || (dx.defined() && !is_picture(dx)) ||
        !is_plain(weight) || !is_plain(dw) || !is_plain(db))
      return false;
    const at::Tensor gradient = read(dy), from = read(x),
                     image = dx.defined() ? image_for(dx) : at::Tensor();
    add(Kind::group_norm_gradient, {gradient, from, tensor(call, 2), tensor(call, 3), weight},
        {image, dw, db});
    if (dx.defined()) written(dx, image);
    return true;
  }

  // native_batch_norm(input, weight?, bias?, mean?, variance?, training, momentum, eps)
  bool batch_norm(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
    const at::Tensor weight = optional(call, 1), bias = optional(call, 2), mean = optional(call, 3),
                     variance = optional(call, 4);
    if (call.arguments[5].toBool() || !mean.defined() || !variance.defined() || !is_picture(x) ||
        !is_picture(y) || !is_plain(weight) || !is_plain(bias) || !is_plain(mean) ||
        !is_plain(variance))
      return false;
    const at::Tensor from = read(x), image = image_for(y);
    add(Kind::frozen_norm, {from, weight, bias, mean, variance}, {image});
    written(y, image);
    return true;
  }

  // native_batch_norm_backward(gradient, input, weight?, mean?, variance?, saved mean, saved rstd,
  // training, eps, mask)
  bool batch_norm_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                     &dw = result(call, 1), &db = result(call, 2);
    const at::Tensor weight = optional(call, 2), mean = optional(call, 3),
                     variance = optional(call, 4);
    if (call.arguments[7].toBool() || !mean.defined() || !variance.defined() || !is_picture(dy) ||
        !is_picture(x) || (dx.defined() && !is_picture(dx)) || !is_plain(weight) ||
        !is_plain(mean) || !is_plain(variance) || !is_plain(dw) || !is_plain(db))
      return false;
    const at::Tensor gradient = read(dy), from = read(x),
                     image = dx.defined() ? image_for(dx) : at::Tensor();
    add(Kind::frozen_norm_gradient, {gradient, from, mean, variance, weight}, {image, dw, db});
    if (dx.defined()) written(dx, image);
    return true;
  }

  bool copies(const at::Tensor& from, const at::Tensor& to) {
    if (!is_dense(from) || !is_dense(to) || from.device() != to.device() ||
        from.sizes() != to.sizes() || (on_gpu_ && from.dim() > 4))
      return false;
    const bool image = is_picture(from) && !lie_alike(from, to) && is_image(to) &&
                       images_.count(from.const_data_ptr()) > 0;
    add(Kind::copy, {image ? read(from) : from}, {to});
    return true;
  }
  bool copy(const Call& call) { return copies(tensor(call, 1), tensor(call, 0)); }
  bool clone(const Call& call) { return copies(tensor(call, 0), result(call)); }

  // check_and_update(weights, to, gradient, state[], memory[], numbers, rate, skipped, finite?)
  bool update(const Call& call) {
    const at::Tensor &from = tensor(call, 0), &to = tensor(call, 1), &gradient = tensor(call, 2),
                     &rate = tensor(call, 6), &skipped = tensor(call, 7);
    if (!is_dense(from) || !is_dense(gradient) || !is_dense(skipped) ||
        rate.scalar_type() != at::kDouble)
      return false;
    std::vector<at::Tensor> reads = {from, gradient, rate, optional(call, 8)},
                            writes = {result(call), skipped, to};
    for (const std::size_t list : {3, 4}) {
      for (const at::Tensor& kept : call.arguments[list].toTensorVector()) {
        reads.push_back(kept);
        writes.push_back(kept);
      }
    }
    add(Kind::update, std::move(reads), std::move(writes));
    return true;
  }

  OwnMemory& own_;
  const bool on_gpu_;
  const Call* call_ = nullptr;  ///< under way
  std::vector<Node> nodes_;
  /// By address: the picture and its image.
  std::map<const void*, std::pair<at::Tensor, at::Tensor>> images_;
};

const std::map<std::string, Translation::Rule>& Translation::rules() {
  static const std::map<std::string, Rule> table = {
      {"aten::convolution", {&Translation::convolution, true}},
      // A traced module's; more flags follow.
      {"aten::_convolution", {&Translation::convolution, true}},
      {"aten::convolution_backward", {&Translation::convolution_backward, true}},
      {"aten::mm", {&Translation::product}},
      {"aten::addmm", {&Translation::product_and_bias}},
      {"aten::relu", {&Translation::relu, true}},
      {"aten::sigmoid", {&Translation::sigmoid, true}},
      {"aten::threshold_backward", {&Translation::threshold_backward, true}},
      {"aten::sigmoid_backward", {&Translation::sigmoid_backward, true}},
      {"aten::add", {&Translation::sum, true}},
      {"aten::add_", {&Translation::sum, true}},
      {"aten::sum", {&Translation::channel_sums}},
      {"aten::mse_loss", {&Translation::mse_loss, true}},
      {"aten::mse_loss_backward", {&Translation::mse_loss_backward, true}},
      {"aten::native_group_norm", {&Translation::group_norm}},
      {"aten::native_group_norm_backward", {&Translation::group_norm_backward}},
      {"aten::native_batch_norm", {&Translation::batch_norm}},
      {"aten::native_batch_norm_backward", {&Translation::batch_norm_backward}},
      {"aten::copy_", {&Translation::copy, true}},
      {"aten::clone", {&Translation::clone, true}},
      {"aten::_to_copy", {&Translation::clone, true}},
      {"millrace::add_up", {&Translation::add_up}},
      {"millrace::check_and_update", {&Translation::update}},
  };
  return table;
}

}  // namespace

std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu) {
  return Translation(own, on_gpu).run(calls);
}

}  // namespace millrace::program
