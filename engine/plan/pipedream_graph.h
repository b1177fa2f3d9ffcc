// Profiles in PipeDream's `graph.txt` form; its repository has a dozen networks.
#pragma once

#include <string>

#include "engine/plan/profile.h"

namespace millrace::engine::plan {

/// Reads a graph: a line a layer, then a line an edge,
///
///     node7 -- LSTM(2048, 1024) -- forward_compute_time=3.190, backward_compute_time=5.348,
///         activation_size=[6291456.0; 131072.0], parameter_size=50364416.000
///     <tab>node6 -- node7
///
/// (the first on one line; milliseconds and bytes of a minibatch of `frames`) and orders the layers
/// in a chain: each after what it reads, the least number first, which is the order of the forward.
/// Every cut of the chain splits the graph in two with all edges one way; each output that a later
/// layer still reads crosses it once. If the graph is a chain with skips, these are PipeDream's own
/// cuts (its antichains); if branches run in parallel, PipeDream tries more.
///
/// Inputs are left out, as in PipeDream: stage 0 receives the data. The form has one figure for the
/// backward, which is halved between input and weights if there are weights; no updates; and no
/// stash, for which the output is taken. `name`: of the file, for errors. Throws ProfileError,
/// which names line and field.
Profile profile_from_graph(const std::string& text, const std::string& name, int frames);

/// Whether a text looks like such a graph, rather than like JSON.
bool is_graph(const std::string& text);

}  // namespace millrace::engine::plan
