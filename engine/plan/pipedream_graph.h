// Profiles in PipeDream's `graph.txt` form, as its repository publishes them for a dozen networks.
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
/// (the first on one line; milliseconds and bytes of a minibatch of `frames`) and makes a chain of
/// it: the layers in an order in which each comes after what it reads, of those ready the one with
/// the least number, which is the order the forward ran them in. Every cut of that chain splits the
/// graph in two with all edges one way, and what crosses it is each output that somebody behind
/// still reads, once. These are PipeDream's own cuts (its antichains) where the graph is a chain
/// with skips; of a graph whose branches run side by side it tries more of them.
///
/// Inputs are left out, as in PipeDream: data comes in where stage 0 is. The form does not part the
/// backward, which is given in halves to input and weights where there are weights. It has no
/// updates and no stash: the stash is taken to be the output. `name` stands for the file in errors.
/// Throws ProfileError, which names line and field.
Profile profile_from_graph(const std::string& text, const std::string& name, int frames);

/// Whether a text looks like such a graph, rather than like JSON.
bool is_graph(const std::string& text);

}  // namespace millrace::engine::plan
