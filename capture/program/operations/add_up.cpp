// The sum over the ranks that share modules, all of which run the same programs: {part} -> {sum}.
#include <ATen/ATen.h>

#include <cstring>

#include "capture/program/lowering.h"
#include "stages/tensor_split.h"

namespace millrace::program {
namespace {

// add_up(part, reducer, place)
bool add_up(Lowering& lower, const Call& call) {
  const at::Tensor &part = tensor(call, 0), &made = result(call);
  const auto argument = call.arguments[1].toCustomClass<stages::ReducerArgument>();
  if (!are_pictures(part, made)) return false;
  const auto add = [reducer = argument->reducer, place = int(call.arguments[2].toInt()),
                    count = std::size_t(made.numel())](const Ends& at) {
    std::memcpy(at.to, at.from, count * sizeof(float));
    reducer->add_up({at.to, count}, place);
  };
  const auto on_cores = [add](const Node& node, int threads) {
    auto prepared = by_one(ends, add)(node, threads);
    prepared->info.kernel = "ranks";
    return prepared;
  };
  return lower.add_image(
      made, {.name = "sum over ranks " + text_of(layout_of(part)), .on_cores = on_cores},
      {lower.read(part)});
}

}  // namespace

const Rules add_up_rules = {{"millrace::add_up", {add_up, false}}};

}  // namespace millrace::program
