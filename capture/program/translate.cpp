// Lowers LibTorch's operators to nodes.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>

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

/// Whether it is float32 and kernels can copy it: on a core whatever its strides.
bool is_copyable(const at::Tensor& tensor) {
  return is_dense(tensor) || (tensor.is_cpu() && tensor.scalar_type() == at::kFloat);
}

/// Whether it could be an image, laid out otherwise.
bool is_picture(const at::Tensor& tensor) {
  return is_copyable(tensor) && tensor.dim() == 4 && tensor.size(0) == 1;
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
  if (call.name() == "aten::as_strided_") return true;
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
    calls_ = calls;
    for (const Call& call : calls) {
      if (only_allocates(call) || only_names(call)) continue;
      call_ = &call;
      if (!translated(call)) left(call);
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

  bool translated(const Call& call) { return translated(call, call.name()); }
  bool translated(const Call& call, const std::string& name) {
    const auto known = [&](const auto& rules) {
      const auto rule = rules.find(name);
      return rule != rules.end() && (!on_gpu_ || rule->second.on_gpu) ? &rule->second : nullptr;
    };
    if (const Rule* rule = known(rules())) return (this->*rule->translate)(call);
    if (const MapRule* rule = known(map_rules())) return map(call, *rule);
    const bool in_place = name.ends_with('_');
    return in_place && translated(call, name.substr(0, name.size() - 1));
  }

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
    if (found != images_.end() && found->second.first.sizes() == tensor.sizes() &&
        found->second.first.strides() == tensor.strides())
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

  static constexpr int kLargestOnGpu = 31;  ///< kernel: its sums fill a thread's registers
  /// Floats: where the taps' inputs are more, LibTorch, which does not put them side by side.
  static constexpr double kLargestUnfolded = 4 << 20;

  /// The convolution without its pass, if there are kernels for it. `first`: the place of stride,
  /// before padding, dilation, transposed, output_padding, groups.
  static std::optional<kernels::Convolution> described(const at::Tensor& input,
                                                       const at::Tensor& output,
                                                       const at::Tensor& weight, const Call& call,
                                                       std::size_t first) {
    if (!is_picture(input) || !is_picture(output) || weight.dim() != 4 || !is_dense(weight) ||
        !weight.is_contiguous())
      return {};
    const auto taps = [&](std::size_t side) {
      const auto number = [&](std::size_t argument) {
        const std::vector<std::int64_t> of_sides = call.arguments[argument].toIntVector();
        return int(of_sides[std::min(side, of_sides.size() - 1)]);
      };
      return kernels::Taps{.count = int(weight.size(std::int64_t(2 + side))),
                           .stride = number(first),
                           .padding = number(first + 1),
                           .dilation = number(first + 2)};
    };
    const kernels::TapGrid window = {taps(0), taps(1)};
    kernels::Convolution c = {.input = layout_of(input),
                              .output = layout_of(output),
                              .kernel = window.rows.count,
                              .stride = window.rows.stride,
                              .groups = int(call.arguments[first + 5].toInt())};
    if (is_transposed(call, first)) std::swap(c.input, c.output);
    const auto usual = [&](const kernels::Taps& t) {
      return t.count == c.kernel && t.stride == c.stride && t.padding == t.count / 2 &&
             t.dilation == 1;
    };
    if (c.kernel % 2 == 0 || !usual(window.rows) || !usual(window.columns)) c.window = window;
    const bool each_alone = c.groups == c.input.channels && c.groups == c.output.channels;
    const double unfolded = double(c.output.height) * c.output.width * c.input.channels / c.groups *
                            kernels::taps_of(window);
    if (c.window && !each_alone && unfolded > kLargestUnfolded) return {};
    if (input.is_cuda() &&
        (c.window || c.groups > 1 || is_transposed(call, first) || c.kernel > kLargestOnGpu))
      return {};
    return c;
  }
  static bool is_transposed(const Call& call, std::size_t first) {
    return call.arguments[first + 3].toBool();
  }

  // convolution(input, weight, bias?, stride, ...). A transposed one is the input's gradient of
  // another, whose output is this one's input.
  bool convolution(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &w = tensor(call, 1), &y = result(call);
    std::optional<kernels::Convolution> c = described(x, y, w, call, 3);
    if (!c) return false;
    const at::Tensor bias = optional(call, 2), from = read(x), image = image_for(y);
    if (is_transposed(call, 3)) {
      c->pass = kernels::Pass::kDataGradient;
      const at::Tensor sums =
          bias.defined() ? own(y.sizes(), image_format(y.device()), y.device()) : image;
      add(Kind::data_gradient, {from, w}, {sums}).convolution = *c;
      if (bias.defined()) map(kernels::Function::add, {}, {sums, bias.view({-1, 1, 1})}, image);
    } else {
      std::vector<at::Tensor> reads = {from, w};
      if (bias.defined()) reads.push_back(bias);
      add(Kind::convolution, std::move(reads), {image}).convolution = *c;
    }
    written(y, image);
    return true;
  }

  // convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
  bool convolution_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &w = tensor(call, 2);
    const at::Tensor &dx = result(call, 0), &dw = result(call, 1), &db = result(call, 2);
    std::optional<kernels::Convolution> c = described(x, dy, w, call, 4);
    if (!c || (db.defined() && !dw.defined())) return false;
    const bool transposed = is_transposed(call, 4);
    const at::Tensor gradient = read(dy);
    if (dx.defined()) {
      const at::Tensor image = image_for(dx);
      c->pass = transposed ? kernels::Pass::kForward : kernels::Pass::kDataGradient;
      add(transposed ? Kind::convolution : Kind::data_gradient, {gradient, w}, {image})
          .convolution = *c;
      written(dx, image);
    }
    if (dw.defined()) {
      const at::Tensor plain =
          dw.is_contiguous() ? dw : own(dw.sizes(), at::MemoryFormat::Contiguous, dw.device());
      const at::Tensor from = read(x);
      c->pass = kernels::Pass::kWeightGradient;
      transposed ? add(Kind::weight_gradient, {from, gradient}, {plain, {}}).convolution = *c
                 : add(Kind::weight_gradient, {gradient, from}, {plain, db}).convolution = *c;
      if (!plain.is_same(dw)) add(Kind::copy, {plain}, {dw});
      if (transposed && db.defined()) add(Kind::channel_sums, {gradient}, {db});
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
    // Both turned is b' a' turned, of which there is no kernel.
    if (a.size(1) > 1 && !a.is_contiguous() && !b.is_contiguous() && b.t().is_contiguous())
      return product(contiguous(a), b, bias, made);
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

  // Functions of each element.

  /// Puts the elements of `made` into rows so that each operand, spread over `made`, has one step
  /// from row to row and one, 0 or 1, in a row. Nothing if they can't be.
  static std::optional<kernels::Map> in_rows(const at::Tensor& made,
                                             const std::vector<at::Tensor>& operands) {
    std::vector<std::int64_t> order;  // of dimensions, in that of memory
    for (std::int64_t d = 0; d < made.dim(); ++d) {
      if (made.size(d) > 1) order.push_back(d);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return made.stride(a) > made.stride(b); });
    for (std::size_t split = 0; split <= order.size(); ++split) {
      kernels::Map map;
      const auto dimensions = std::span(order);
      const auto outer = dimensions.first(split), inner = dimensions.subspan(split);
      map.rows = std::size_t(elements(made, outer));
      map.row = std::size_t(elements(made, inner));
      bool fits = true;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const at::Tensor spread = operands[i].expand(made.sizes());
        const std::optional<std::int64_t> row = step(spread, outer), each = step(spread, inner);
        fits = fits && row && each && *row >= 0 && (*each == 0 || *each == 1);
        if (!fits) break;
        (i == 0 ? map.left : map.right) = {std::size_t(*row), *each == 1};
      }
      if (fits) return map;
    }
    return {};
  }
  static std::int64_t elements(const at::Tensor& tensor, std::span<const std::int64_t> dimensions) {
    std::int64_t count = 1;
    for (const std::int64_t d : dimensions) count *= tensor.size(d);
    return count;
  }
  /// From an element to the next along dimensions that go on from one to the other.
  static std::optional<std::int64_t> step(const at::Tensor& tensor,
                                          std::span<const std::int64_t> dimensions) {
    for (std::size_t i = 0; i + 1 < dimensions.size(); ++i) {
      const std::int64_t d = dimensions[i], next = dimensions[i + 1];
      if (tensor.stride(d) != tensor.stride(next) * tensor.size(next)) return {};
    }
    return dimensions.empty() ? 0 : tensor.stride(dimensions.back());
  }

  /// Adds function(operands), each of which is spread over `made`.
  bool map(kernels::Function function, const std::array<float, 3>& numbers,
           std::vector<at::Tensor> operands, const at::Tensor& made) {
    using Operands = std::vector<at::Tensor>;
    if (!is_dense(made) || made.numel() == 0) return false;
    Operands wide, narrow;  // of made's size, and smaller
    for (const at::Tensor& operand : operands) {
      if (!is_copyable(operand) || operand.device() != made.device() ||
          !at::is_expandable_to(operand.sizes(), made.sizes()))
        return false;
      (operand.sizes() == made.sizes() ? wide : narrow).push_back(operand);
    }
    const auto lies_well = [&](const at::Tensor& operand) {
      return lie_alike(operand, made) && images_.count(operand.const_data_ptr()) == 0;
    };
    const bool as_it_lies =
        std::all_of(wide.begin(), wide.end(), lies_well) && (!wide.empty() || !is_picture(made));
    if (on_gpu_ && !(narrow.empty() && (as_it_lies || is_picture(made)))) return false;
    const at::Tensor to = as_it_lies || !is_picture(made) ? made : image_for(made);
    if (!narrow.empty() && !in_rows(to, narrow)) return false;
    for (at::Tensor& operand : operands) {
      if (operand.sizes() != made.sizes() || lie_alike(operand, to)) continue;
      if (is_picture(made)) {
        operand = read(operand);
      } else {
        const at::Tensor alike = at::empty_strided(made.sizes(), made.strides(), made.options());
        own_.add(alike);
        add(Kind::copy, {operand}, {alike});
        operand = alike;
      }
    }
    std::optional<kernels::Map> rows = in_rows(to, operands);
    if (!rows) rows = kernels::Map{.row = std::size_t(to.numel())};  // all lie alike
    rows->function = function;
    std::copy(numbers.begin(), numbers.end(), rows->numbers);
    add(Kind::map, std::move(operands), {to}).map = *rows;
    written(made, to);
    return true;
  }

  /// The operator's function, and which of its arguments are operands and numbers.
  struct MapRule {
    kernels::Function function;
    std::vector<std::size_t> operands, numbers;
    bool on_gpu = false;
  };
  static const std::map<std::string, MapRule>& map_rules();

  bool map(const Call& call, const MapRule& rule) {
    std::vector<at::Tensor> operands;
    for (const std::size_t i : rule.operands) operands.push_back(operand(call.arguments[i]));
    std::array<float, 3> numbers{};
    for (std::size_t i = 0; i < rule.numbers.size(); ++i)
      numbers[i] = float(call.arguments[rule.numbers[i]].toScalar().toDouble());
    return map(rule.function, numbers, std::move(operands), result(call));
  }
  /// A number is an operand of one element.
  static at::Tensor operand(const c10::IValue& value) {
    return value.isTensor() ? value.toTensor() : at::scalar_tensor(value.toScalar(), at::kFloat);
  }

  bool threshold_backward(const Call& call) {
    return call.arguments[2].toScalar().toDouble() == 0 &&
           map(kernels::Function::relu_gradient, {}, {tensor(call, 0), tensor(call, 1)},
               result(call));
  }
  // gelu(x, approximate)
  bool gelu(const Call& call) {
    using kernels::Function;
    return map(call.arguments[1].toStringRef() == "tanh" ? Function::gelu_tanh : Function::gelu, {},
               {tensor(call, 0)}, result(call));
  }
  bool gelu_backward(const Call& call) {
    using kernels::Function;
    const bool by_tanh = call.arguments[2].toStringRef() == "tanh";
    return map(by_tanh ? Function::gelu_tanh_gradient : Function::gelu_gradient, {},
               {tensor(call, 0), tensor(call, 1)}, result(call));
  }
  // elu_backward(gradient, alpha, scale, input_scale, is_result, given or made)
  bool elu_backward(const Call& call) {
    using kernels::Function;
    return map(call,
               {call.arguments[4].toBool() ? Function::elu_result_gradient : Function::elu_gradient,
                {0, 5},
                {1, 2, 3}});
  }
  // add(a, b, alpha), sub alike
  bool sum(const Call& call) {
    return call.arguments[2].toScalar().toDouble() == 1 &&
           map(call, {kernels::Function::add, {0, 1}, {}});
  }
  bool subtraction(const Call& call) {
    return call.arguments[2].toScalar().toDouble() == 1 &&
           map(call, {kernels::Function::subtract, {0, 1}, {}});
  }

  /// Whether it is a number for each channel of `picture`, whose sums' sizes it has.
  static bool is_of_channels(const at::Tensor& tensor, const at::Tensor& picture) {
    return tensor.numel() == picture.size(1) &&
           (tensor.dim() != 4 || tensor.size(1) == picture.size(1));
  }

  // sum(input, dim[], keepdim, dtype?) and mean alike
  bool channel_sums(const Call& call) { return channel_sums(call, 1); }
  bool channel_means(const Call& call) {
    return channel_sums(call, 1 / float(tensor(call, 0).numel() / result(call).numel()));
  }
  bool channel_sums(const Call& call, float factor) {
    const at::Tensor &x = tensor(call, 0), &made = result(call);
    if (!is_dense(made) || made.numel() == 0 || !call.arguments[3].isNone()) return false;
    const bool of_rows = is_dense(x) && x.is_contiguous() && x.dim() > 1 &&
                         made.numel() == x.size(-1) && all_but_the_last(x, call.arguments[1]);
    if (!of_rows && !(is_picture(x) && is_of_channels(made, x))) return false;
    const at::Tensor from = of_rows ? as_pixels(x.view({-1, x.size(-1)})) : read(x);
    add(Kind::channel_sums, {from}, {made}).factor = factor;
    return true;
  }
  /// Whether the sum is over all dimensions but the last, or those that it leaves have one element.
  static bool all_but_the_last(const at::Tensor& x, const c10::IValue& dimensions) {
    std::set<std::int64_t> summed;
    for (const std::int64_t d : dimensions.toIntVector()) summed.insert(d < 0 ? d + x.dim() : d);
    for (std::int64_t d = 0; d + 1 < x.dim(); ++d) {
      if (x.size(d) > 1 && summed.count(d) == 0) return false;
    }
    return summed.count(x.dim() - 1) == 0;
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

  // native_layer_norm(input, normalized_shape, weight?, bias?, eps)
  bool layer_norm(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &y = result(call);
    const at::Tensor weight = optional(call, 2), bias = optional(call, 3);
    if (!is_plain(x) || !is_plain(y) || !is_plain(weight) || !is_plain(bias)) return false;
    add(Kind::layer_norm, {x, weight, bias}, {y, result(call, 1), result(call, 2)}).matrix =
        rows_of(x, call.arguments[1]);
    return true;
  }
  // native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight?, bias?, mask)
  bool layer_norm_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                     &dw = result(call, 1), &db = result(call, 2);
    const at::Tensor weight = optional(call, 5);
    if (!is_copyable(dy) || !is_plain(x) || !is_plain(dx) || !is_plain(dw) || !is_plain(db) ||
        !is_plain(weight))
      return false;
    const at::Tensor gradient = contiguous(dy);
    add(Kind::layer_norm_gradient, {gradient, x, tensor(call, 3), tensor(call, 4), weight},
        {dx, dw, db})
        .matrix = rows_of(x, call.arguments[2]);
    return true;
  }
  static kernels::Matrix rows_of(const at::Tensor& x, const c10::IValue& normalized_shape) {
    std::int64_t row = 1;
    for (const std::int64_t size : normalized_shape.toIntVector()) row *= size;
    return {std::size_t(x.numel() / row), std::size_t(row)};
  }
  /// It, or a copy without gaps.
  at::Tensor contiguous(const at::Tensor& tensor) {
    if (tensor.is_contiguous()) return tensor;
    const at::Tensor made = own(tensor.sizes(), at::MemoryFormat::Contiguous, tensor.device());
    add(Kind::copy, {tensor}, {made});
    return made;
  }

  // _softmax(x, dim, half_to_float), _log_softmax alike, and
  // _softmax_backward_data(gradient, made, dim, dtype)
  bool softmax(const Call& call) { return softmax(call, Kind::softmax, 1); }
  bool softmax_backward(const Call& call) { return softmax(call, Kind::softmax_gradient, 2); }
  bool softmax(const Call& call, Kind kind, std::size_t operands) {
    const at::Tensor& made = result(call);
    const std::int64_t side = call.arguments[operands].toInt();
    std::vector<at::Tensor> reads;
    for (std::size_t i = 0; i < operands; ++i) reads.push_back(tensor(call, i));
    if (!is_plain(made) || made.dim() == 0 || made.numel() == 0 ||
        (side != made.dim() - 1 && side != -1) ||
        !std::all_of(reads.begin(), reads.end(), is_copyable))
      return false;
    for (at::Tensor& each : reads) each = contiguous(each);
    const auto row = std::size_t(made.size(-1));
    Node& node = add(kind, std::move(reads), {made});
    node.matrix = {std::size_t(made.numel()) / row, row};
    node.logarithm = call.name().starts_with("aten::_log");
    return true;
  }

  // Pooling. `first`: the place of kernel, before stride, padding and, of the largest, dilation.

  static std::optional<kernels::Pool> pooling(const at::Tensor& x, const at::Tensor& y,
                                              const Call& call, std::size_t first, bool largest) {
    if (!is_picture(x) || !is_picture(y)) return {};
    const auto taps = [&](std::size_t side) {
      const auto number = [&](std::size_t argument) {
        const std::vector<std::int64_t> sides = call.arguments[first + argument].toIntVector();
        return sides.empty() ? 0 : int(sides[std::min(side, sides.size() - 1)]);
      };
      kernels::Taps made{.count = number(0), .stride = number(1), .padding = number(2)};
      if (made.stride == 0) made.stride = made.count;
      if (largest) made.dilation = number(3);
      return made;
    };
    kernels::Pool pool{.input = layout_of(x),
                       .output = layout_of(y),
                       .window = {taps(0), taps(1)},
                       .largest = largest};
    if (largest) return pool;
    const auto [rows, columns] = pool.window;
    if (rows.outputs(pool.input.height) != pool.output.height ||
        columns.outputs(pool.input.width) != pool.output.width)
      return {};  // what lies beyond the padding counts otherwise
    pool.counts_zeros = call.arguments[first + 4].toBool();
    if (!call.arguments[first + 5].isNone())
      pool.divisor = float(call.arguments[first + 5].toInt());
    return pool;
  }
  bool pools(const std::optional<kernels::Pool>& pool, const at::Tensor& x, const at::Tensor& y) {
    if (!pool) return false;
    const at::Tensor from = read(x), image = image_for(y);
    add(Kind::pool, {from}, {image}).pool = *pool;
    written(y, image);
    return true;
  }
  bool pools_back(const std::optional<kernels::Pool>& pool, const at::Tensor& dy,
                  const at::Tensor& x, const at::Tensor& dx) {
    if (!pool || !is_picture(dy) || !is_picture(dx)) return false;
    std::vector<at::Tensor> reads = {read(dy)};
    if (pool->largest) reads.push_back(read(x));
    const at::Tensor image = image_for(dx);
    add(Kind::pool_gradient, std::move(reads), {image}).pool = *pool;
    written(dx, image);
    return true;
  }

  // max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil) -> {y, indices}, which the
  // gradient finds anew.
  bool max_pool(const Call& call) {
    const at::Tensor& indices = result(call, 1);
    for (const Call& other : calls_) {
      bool reads = false;
      each_tensor(other.arguments, [&](const at::Tensor& t) { reads |= t.is_alias_of(indices); });
      if (reads && other.name() != "aten::max_pool2d_with_indices_backward") return false;
    }
    return pools(pooling(tensor(call, 0), result(call), call, 1, true), tensor(call, 0),
                 result(call));
  }
  // max_pool2d_with_indices_backward(gradient, x, kernel, ...)
  bool max_pool_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1);
    return pools_back(pooling(x, dy, call, 2, true), dy, x, result(call));
  }
  // avg_pool2d(x, kernel, stride, padding, ceil, counts zeros, divisor?)
  bool mean_pool(const Call& call) {
    return pools(pooling(tensor(call, 0), result(call), call, 1, false), tensor(call, 0),
                 result(call));
  }
  // avg_pool2d_backward(gradient, x, kernel, ...)
  bool mean_pool_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1);
    return pools_back(pooling(x, dy, call, 2, false), dy, x, result(call));
  }

  /// Windows of equal size, side by side: the way from `fine` to `coarse`.
  static std::optional<kernels::Pool> tiles(const at::Tensor& fine, const at::Tensor& coarse) {
    if (!is_picture(fine) || !is_picture(coarse)) return {};
    kernels::Pool pool{.input = layout_of(fine), .output = layout_of(coarse)};
    const auto side = [](int from, int to) {
      return kernels::Taps{.count = from / to, .stride = from / to};
    };
    if (pool.input.height % pool.output.height != 0 || pool.input.width % pool.output.width != 0)
      return {};
    pool.window = {side(pool.input.height, pool.output.height),
                   side(pool.input.width, pool.output.width)};
    return pool;
  }
  // _adaptive_avg_pool2d(x, size)
  bool adaptive_pool(const Call& call) {
    return pools(tiles(tensor(call, 0), result(call)), tensor(call, 0), result(call));
  }
  // _adaptive_avg_pool2d_backward(gradient, x)
  bool adaptive_pool_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &dx = result(call);
    return pools_back(tiles(dx, dy), dy, {}, dx);
  }
  /// By a whole number: what a sum over tiles gives back.
  static std::optional<kernels::Pool> enlargement(const at::Tensor& fine, const at::Tensor& coarse,
                                                  const Call& call, std::size_t scales) {
    std::optional<kernels::Pool> pool = tiles(fine, coarse);
    const auto agrees = [&](std::size_t argument, int factor) {
      const c10::IValue& scale = call.arguments[argument];
      return scale.isNone() || scale.toDouble() == factor;
    };
    if (!pool || !agrees(scales, pool->window.rows.count) ||
        !agrees(scales + 1, pool->window.columns.count))
      return {};
    pool->divisor = 1;
    return pool;
  }
  // upsample_nearest2d(x, size, scale?, scale?)
  bool upsample(const Call& call) {
    const at::Tensor &x = tensor(call, 0), &y = result(call);
    return pools_back(enlargement(y, x, call, 2), x, {}, y);
  }
  // upsample_nearest2d_backward(gradient, size, size of x, scale?, scale?)
  bool upsample_backward(const Call& call) {
    const at::Tensor &dy = tensor(call, 0), &dx = result(call);
    return pools(enlargement(dy, dx, call, 3), dy, dx);
  }

  // new_zeros, zeros, zeros_like, zero_
  bool zero(const Call& call) {
    const at::Tensor& made = result(call);
    if (!is_dense(made)) return false;
    add(Kind::zero, {}, {made});
    return true;
  }

  bool copies(const at::Tensor& from, const at::Tensor& to) {
    if (!is_copyable(from) || !is_copyable(to) || from.device() != to.device() ||
        from.sizes() != to.sizes() || (on_gpu_ && from.dim() > 4))
      return false;
    const bool image = is_picture(from) && !lie_alike(from, to) && is_image(to) &&
                       images_.count(from.const_data_ptr()) > 0;
    add(Kind::copy, {image ? read(from) : from}, {to});
    return true;
  }
  // cat(tensors, dim)
  bool concatenation(const Call& call) {
    const std::vector<at::Tensor> parts = call.arguments[0].toTensorVector();
    const at::Tensor& made = result(call);
    const std::int64_t side = call.arguments[1].toInt();
    if ((side != 1 && side != -3) || !is_picture(made) ||
        !std::all_of(parts.begin(), parts.end(), is_picture))
      return false;
    const at::Tensor image = image_for(made);
    std::int64_t channel = 0;
    for (const at::Tensor& part : parts) {
      const at::Tensor from = read(part);
      add(Kind::copy, {from}, {image.narrow(1, channel, part.size(1))});
      channel += part.size(1);
    }
    written(made, image);
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
  std::span<const Call> calls_;
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
      {"aten::threshold_backward", {&Translation::threshold_backward, true}},
      {"aten::add", {&Translation::sum, true}},
      {"aten::sub", {&Translation::subtraction}},
      {"aten::gelu", {&Translation::gelu}},
      {"aten::gelu_backward", {&Translation::gelu_backward}},
      {"aten::elu_backward", {&Translation::elu_backward}},
      {"aten::sum", {&Translation::channel_sums}},
      {"aten::mean", {&Translation::channel_means}},
      {"aten::mse_loss", {&Translation::mse_loss, true}},
      {"aten::mse_loss_backward", {&Translation::mse_loss_backward, true}},
      {"aten::native_group_norm", {&Translation::group_norm}},
      {"aten::native_group_norm_backward", {&Translation::group_norm_backward}},
      {"aten::native_batch_norm", {&Translation::batch_norm}},
      {"aten::native_batch_norm_backward", {&Translation::batch_norm_backward}},
      {"aten::native_layer_norm", {&Translation::layer_norm}},
      {"aten::native_layer_norm_backward", {&Translation::layer_norm_backward}},
      {"aten::_softmax", {&Translation::softmax}},
      {"aten::_log_softmax", {&Translation::softmax}},
      {"aten::_softmax_backward_data", {&Translation::softmax_backward}},
      {"aten::_log_softmax_backward_data", {&Translation::softmax_backward}},
      {"aten::max_pool2d_with_indices", {&Translation::max_pool}},
      {"aten::max_pool2d_with_indices_backward", {&Translation::max_pool_backward}},
      {"aten::avg_pool2d", {&Translation::mean_pool}},
      {"aten::avg_pool2d_backward", {&Translation::mean_pool_backward}},
      {"aten::_adaptive_avg_pool2d", {&Translation::adaptive_pool}},
      {"aten::_adaptive_avg_pool2d_backward", {&Translation::adaptive_pool_backward}},
      {"aten::upsample_nearest2d", {&Translation::upsample}},
      {"aten::upsample_nearest2d_backward", {&Translation::upsample_backward}},
      {"aten::new_zeros", {&Translation::zero}},
      {"aten::zeros", {&Translation::zero}},
      {"aten::zeros_like", {&Translation::zero}},
      {"aten::zero_", {&Translation::zero}},
      {"aten::cat", {&Translation::concatenation}},
      {"aten::copy_", {&Translation::copy, true}},
      {"aten::clone", {&Translation::clone, true}},
      {"aten::_to_copy", {&Translation::clone, true}},
      {"millrace::add_up", {&Translation::add_up}},
      {"millrace::check_and_update", {&Translation::update}},
  };
  return table;
}

const std::map<std::string, Translation::MapRule>& Translation::map_rules() {
  using kernels::Function;
  static const std::map<std::string, MapRule> table = {
      {"aten::mul", {Function::multiply, {0, 1}, {}}},
      {"aten::div", {Function::divide, {0, 1}, {}}},
      {"aten::neg", {Function::negate, {0}, {}}},
      {"aten::abs", {Function::absolute, {0}, {}}},
      {"aten::sgn", {Function::sign, {0}, {}}},
      {"aten::relu", {Function::relu, {0}, {}, true}},
      {"aten::sigmoid", {Function::sigmoid, {0}, {}, true}},
      {"aten::sigmoid_backward", {Function::sigmoid_gradient, {0, 1}, {}, true}},
      {"aten::tanh", {Function::tanh, {0}, {}}},
      {"aten::tanh_backward", {Function::tanh_gradient, {0, 1}, {}}},
      {"aten::silu", {Function::silu, {0}, {}}},
      {"aten::silu_backward", {Function::silu_gradient, {0, 1}, {}}},
      {"aten::hardsigmoid", {Function::hard_sigmoid, {0}, {}}},
      {"aten::hardsigmoid_backward", {Function::hard_sigmoid_gradient, {0, 1}, {}}},
      {"aten::hardswish", {Function::hard_swish, {0}, {}}},
      {"aten::hardswish_backward", {Function::hard_swish_gradient, {0, 1}, {}}},
      {"aten::hardtanh", {Function::clamp, {0}, {1, 2}}},
      {"aten::hardtanh_backward", {Function::clamp_gradient, {0, 1}, {2, 3}}},
      {"aten::leaky_relu", {Function::leaky_relu, {0}, {1}}},
      {"aten::leaky_relu_backward", {Function::leaky_relu_gradient, {0, 1}, {2}}},
      {"aten::elu", {Function::elu, {0}, {1, 2, 3}}},
  };
  return table;
}

}  // namespace

std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu) {
  return Translation(own, on_gpu).run(calls);
}

}  // namespace millrace::program
