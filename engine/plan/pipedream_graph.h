#pragma once

#include <string>

#include "engine/plan/profile.h"

namespace millrace::engine::plan {

/// Reads PipeDream's `graph.txt` (its repository has a dozen): a line per layer, then one per edge,
///
///     node7 -- LSTM(2048, 1024) -- forward_compute_time=3.190, backward_compute_time=5.348,
///         activation_size=[6291456.0; 131072.0], parameter_size=50364416.000
///     <tab>node6 -- node7
///
/// (the first on one line; milliseconds and bytes of a minibatch of `frames`). Orders the layers in
/// a chain: each after what it reads, the lowest number first, which is the order of the forward.
/// Every cut of the chain splits the graph with all edges one way; an output that later layers
/// still read crosses it once. For a chain with skips these are PipeDream's own cuts (its
/// antichains); for parallel branches PipeDream tries more.
///
/// Inputs are left out, as in PipeDream: stage 0 receives the data. The format has one figure for
/// the backward, which is halved between input and weights if there are weights; no updates; and no
/// stash: the output is taken for it. `name`: of the file, for errors. Throws ProfileError with
/// line and field.
Profile profile_from_graph(const std::string& text, const std::string& name, int frames);

/// Whether a text looks like such a graph rather than JSON.
bool is_graph(const std::string& text);

}  // namespace millrace::engine::plan
