// What others have published, and what plan makes of the same networks and machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan/profile.h"

namespace millrace::bench {

/// A published figure beside ours.
struct Comparison {
  std::string source;     ///< the publication
  std::string what;       ///< the quantity, network and machine
  std::string published;  ///< as words
  std::string ours;       ///< as words
  std::optional<double> published_figure, our_figure;
  std::string explanation;  ///< of the difference; never empty
};

/// Profiles of one minibatch a device, as PipeDream trained them: 64 pictures of VGG-16, 128 of
/// ResNet-50, 64 sentences of GNMT-8.
struct Networks {
  engine::plan::Profile vgg16, resnet50, gnmt8;
};

/// From their architectures: figures of our own.
Networks worked_out_networks();

/// A profile for `factor` times the frames: times and what is kept of samples grow with them,
/// weights do not. For profiles that were published for other minibatches.
engine::plan::Profile with_frames(engine::plan::Profile profile, double factor);

/// Where a network's figures come from.
enum class Costs {
  worked_out,  ///< from its architecture
  measured,    ///< by PipeDream's authors
};

/// Table 1 of PipeDream (Narayanan et al., SOSP 2019): configuration, and time of an epoch against
/// data parallel.
std::vector<Comparison> pipedream_table(const Networks& networks, Costs costs = Costs::worked_out);

/// GPipe's and interleaved 1F1B's bubbles, and 2BW against GPipe and 1F1B in memory and rate; on
/// the page of bench seeds.
std::vector<Comparison> schedule_table();

/// PARTIME's speed-up on 2 to 8 GPUs by depth and resolution, with what starting kernels from one
/// host costs and without.
std::vector<Comparison> partime_table();

/// PARTIME's speed-up over one GPU with `stages`. One host starts a frame's kernels, six a layer,
/// one after the other, unless they are recorded; so a frame takes at least that long.
double partime_speedup(int layers, int side, int stages, bool starting_costs);

/// A page with a table for each source, in the order of the rows.
std::string comparisons_markdown(const std::vector<Comparison>& rows);

/// PipeDream's and PARTIME's tables; PipeDream's also from `measured`, if that is not null.
std::vector<Comparison> published_tables(const Networks& networks,
                                         const Networks* measured = nullptr);

}  // namespace millrace::bench
