#include "tools/bench/published.h"

#include <algorithm>

#include "engine/format.h"
#include "engine/plan/plan.h"
#include "tools/bench/known_networks.h"

namespace millrace::bench {

using namespace engine::plan;

namespace {

std::string text(const char* pattern, double value) {
  return engine::format(pattern, value);
}

/// "15-1" as PipeDream writes it; "straight" where each stage has one device.
std::string configuration(const Cut& cut) {
  std::string list;
  bool straight = cut.stages.size() > 1;
  for (const Stage& stage : cut.stages) {
    list += (list.empty() ? "" : "-") + std::to_string(stage.replicas);
    straight = straight && stage.replicas == 1;
  }
  return straight ? "straight" : list;
}

/// PipeDream's Cluster-A: servers of 4 V100 on PCIe, 10 Gbit/s between them; Cluster-B: of 8 on
/// NVLink, 25 Gbit/s. `share`: of the network's rate a direction gets.
Machine cluster_a(int servers, double share) {
  return {.levels = {{4, {0, 10e6}}, {servers, {0, share * 1.25e6}}}, .overlap = app::Overlap::all};
}
Machine cluster_b(int servers, double share) {
  return {.levels = {{8, {0, 30e6}}, {servers, {0, share * 3.125e6}}}, .overlap = app::Overlap::all};
}

struct Case {
  const char* what;
  const Profile& profile;
  Machine (*cluster)(int servers, double share);
  int servers;
  const char* configuration;  ///< published
  double speedup;             ///< published
  const char* explanation;
};

struct Speedup {
  Cut cut;
  double best = 0;      ///< data parallel's time over that of the best cut
  double straight = 0;  ///< over that of the best cut without replicas
};

Speedup speedup_of(const Case& c, double share) {
  const Machine machine = c.cluster(c.servers, share);
  const CostModel model(c.profile, machine, {.schedule = "pipedream"});
  const Cut parallel = weigh(model, {{0, model.modules(), 0, machine.devices(), 1}});
  const Cut best = best_cut(model, {.replicas = true}).value();
  const Cut straight = best_cut(model, {}).value();
  return {best, parallel.period_ms / best.period_ms, parallel.period_ms / straight.period_ms};
}

Comparison compare(const Case& c, const char* source) {
  const Speedup half = speedup_of(c, 0.5), full = speedup_of(c, 1.0);
  const bool straight = c.configuration == std::string("straight");
  Comparison row{source, c.what};
  row.published = std::string(c.configuration) + ", " + text("%.3g", c.speedup) + "x";
  row.ours = configuration(half.cut) + ", " + text("%.3g", half.best) + "x; straight " +
             text("%.3g", half.straight) + "x (at the full rate of the network " +
             configuration(full.cut) + ", " + text("%.3g", full.best) + "x; straight " +
             text("%.3g", full.straight) + "x)";
  row.published_figure = c.speedup;
  row.our_figure = straight ? half.straight : half.best;
  row.explanation = c.explanation;
  return row;
}

/// A transformer's layers, all equal: forward 1 ms, backward 2, 100 MB of weights, 300 MB saved.
Profile equal_layers(int count) {
  Profile profile;
  profile.network = "equal layers";
  for (int i = 0; i < count; ++i) {
    ModuleProfile module;
    module.name = "layer" + std::to_string(i);
    module.forward.median = 1;
    module.weight_gradient.median = 2;
    module.bytes = {.weight = 100e6, .stash = 300e6};
    profile.modules.push_back(module);
  }
  return profile;
}

Outcome outcome_on(int devices, const char* schedule, int microbatches, int virtual_stages = 2) {
  Request request;
  request.machine.levels = {{devices, {}}};
  request.schedules = {schedule};
  request.microbatches = {microbatches};
  request.virtual_stages = {virtual_stages};
  return make_plan(equal_layers(32), request).ranked.front().outcome;
}

Comparison bubble_row(const char* source, const std::string& what, double published, double ours) {
  return {source,
          what,
          text("%.6g", published),
          text("%.6g", ours),
          published,
          ours,
          "none: the plan's bubble is the formula's where stages are equal"};
}

/// 2BW has no flush and two versions; the others one, and m or p samples' activations.
std::vector<Comparison> against_2bw(const std::string& other, int p, int m) {
  const Outcome two = outcome_on(p, "2bw", m), flushing = outcome_on(p, other.c_str(), m);
  const std::string on =
      " and 2bw, " + std::to_string(p) + " equal stages, " + std::to_string(m) + " microbatches";
  const double rate = flushing.sample_ms / two.sample_ms;
  const double memory = flushing.peak_bytes / two.peak_bytes;
  // A stage of 32/p layers: 0.1 GB a version and as much for a gradient, 0.3 GB a sample each.
  const double samples = other == "gpipe" ? m : std::min(m, p);
  const double memory_formula = (2 * 0.1 + samples * 0.3) / (3 * 0.1 + p * 0.3);
  return {{"PipeDream-2BW, arXiv 2006.09503: no flush", "time a sample, " + other + on,
           "(m+p-1)/m = " + text("%.6g", double(m + p - 1) / m), text("%.6g", rate),
           double(m + p - 1) / m, rate, "none where stages are equal"},
          {"PipeDream-2BW, arXiv 2006.09503: two versions", "memory, " + other + on,
           text("%.6g", memory_formula), text("%.6g", memory), memory_formula, memory,
           "none: versions and samples are counted off the schedule"}};
}

}  // namespace

Networks worked_out_networks() {
  return {vgg16(64, v100()), resnet50(128, v100()), gnmt8(64, v100())};
}

Profile with_frames(Profile profile, double factor) {
  profile.frames = std::max(1, int(profile.frames * factor + 0.5));
  profile.input_bytes *= factor;
  for (ModuleProfile& module : profile.modules) {
    for (Measured* time : {&module.forward, &module.input_gradient, &module.weight_gradient}) {
      time->median *= factor;
      time->spread *= factor;
    }
    for (double* bytes : {&module.bytes.activation, &module.bytes.gradient, &module.bytes.stash,
                          &module.tensor_bytes}) {
      *bytes *= factor;
    }
  }
  return profile;
}

namespace {

/// What is said of the differences, in the order of the table's rows.
struct Explanations {
  const char *vgg_a, *vgg_b, *resnet, *gnmt;
};

constexpr Explanations kOfWorkedOut = {
    "same configuration. Ours divides predicted times, PipeDream's measured epochs. Half of the "
    "network's rate is what PipeDream's optimizer charges, which counts bytes both ways; at its "
    "full rate the factor is half as large, so the measured baseline reached less than half",
    "same configuration at half the network's rate; at its full rate data parallel would do. The "
    "measured baseline was slower still, by a factor of 1.6, than half the nominal rate explains",
    "none",
    "not reproduced. The plan charges data parallel with an all-reduce of all 0.78 GB of "
    "weights, "
    "word tables included, every minibatch; a measured factor of 2.95 says that the baseline did "
    "with less than a third of that time, and how is not in a profile. At the network's full "
    "rate "
    "straight is within 1.6 of the published factor. The plan's own best replicates stages, "
    "since "
    "it lets replicas agree beside their computing"};

constexpr Explanations kOfMeasured = {
    "same configuration, the factor within 8 % of the measured one at half of the network's rate",
    "another configuration: 9-7 is a little faster than 15-1 here, since its two stages agree "
    "within "
    "a server each; like 15-1 it leaves one server's weights to few devices. Ours divides "
    "predicted "
    "times; the measured baseline was slower by half than half of the nominal rate explains",
    "none",
    "not reproduced at half of the network's rate, where the all-reduce of 1.1 GB of weights is "
    "most "
    "of the baseline; at its full rate straight is within 1.2 of the published factor. The plan's "
    "own best replicates stages, since it lets replicas agree beside their computing"};

}  // namespace

std::vector<Comparison> pipedream_table(const Networks& networks, Costs costs) {
  const bool measured = costs == Costs::measured;
  const Explanations& why = measured ? kOfMeasured : kOfWorkedOut;
  const char* const source = measured ? "PipeDream, SOSP 2019, table 1, from its authors' profiles"
                                      : "PipeDream, SOSP 2019, table 1";
  std::vector<Comparison> rows;
  for (const Case& c :
       {Case{"VGG-16, 4x4 V100, Cluster-A", networks.vgg16, cluster_a, 4, "15-1", 5.28, why.vgg_a},
        Case{"VGG-16, 2x8 V100, Cluster-B", networks.vgg16, cluster_b, 2, "15-1", 2.98, why.vgg_b},
        Case{"ResNet-50, 4x4 V100, Cluster-A", networks.resnet50, cluster_a, 4, "16", 1.0,
             why.resnet},
        Case{"ResNet-50, 2x8 V100, Cluster-B", networks.resnet50, cluster_b, 2, "16", 1.0,
             why.resnet},
        Case{"GNMT-8, 3x4 V100, Cluster-A", networks.gnmt8, cluster_a, 3, "straight", 2.95,
             why.gnmt}}) {
    rows.push_back(compare(c, source));
  }
  return rows;
}

std::vector<Comparison> schedule_table() {
  std::vector<Comparison> rows;
  const std::pair<int, int> shapes[] = {{2, 4}, {4, 8}, {8, 32}};
  const auto what = [](int p, int m) {
    return "bubble, " + std::to_string(p) + " stages, " + std::to_string(m) + " microbatches";
  };
  for (const auto& [p, m] : shapes) {
    rows.push_back(bubble_row("GPipe, arXiv 1811.06965: (p-1)/m", what(p, m), double(p - 1) / m,
                              outcome_on(p, "gpipe", m).bubble));
  }
  for (const auto& [p, m] : shapes) {
    for (const int v : {2, 4}) {
      rows.push_back(bubble_row("Megatron-LM, arXiv 2104.04473, section 2.2: (p-1)/(v m)",
                                what(p, m) + ", " + std::to_string(v) + " chunks",
                                double(p - 1) / (v * m),
                                outcome_on(p, "interleaved", m, v).bubble));
    }
  }
  for (const int m : {8, 32}) {
    for (const char* other : {"gpipe", "1f1b"}) {
      for (const Comparison& row : against_2bw(other, 8, m)) rows.push_back(row);
    }
  }
  return rows;
}

double partime_speedup(int layers, int side, int stages, bool starting_costs) {
  const Accelerator gpu = v100();
  const Profile profile = partime_cnn(layers, 16, 5, side, gpu);
  const Machine machine{.levels = {{stages, {0.005, 10e6}}}, .overlap = app::Overlap::transfers};
  const CostModel model(profile, machine, {});
  const double host = starting_costs ? 6.0 * layers * gpu.launch_ms : 0.0;
  const double alone = std::max(host, model.step(0, layers).total());
  return alone / std::max(host, best_cut(model, {})->period_ms);
}

std::vector<Comparison> partime_table() {
  std::vector<Comparison> rows;
  for (const int layers : {10, 30}) {
    for (const int side : {64, 256, 512}) {
      for (const bool costs : {true, false}) {
        Comparison row{"PARTIME, arXiv 2210.09147, section 4",
                       std::to_string(layers) + " layers, " + std::to_string(side) + " x " +
                           std::to_string(side) + ", 2 to 8 GPUs, " +
                           (costs ? "kernels started one by one" : "kernels recorded"),
                       "grows with depth and resolution, levels off for shallow networks"};
        for (int stages = 2; stages <= 8; ++stages) {
          row.ours += (row.ours.empty() ? "" : " ") +
                      text("%.2f", partime_speedup(layers, side, stages, costs));
        }
        row.our_figure = partime_speedup(layers, side, 8, costs);
        row.explanation =
            "published as curves, compared in kind: one host's starting of kernels is what small "
            "frames wait for; 10 layers on 8 GPUs leave two layers to some; large frames follow N";
        rows.push_back(row);
      }
    }
  }
  return rows;
}

std::string comparisons_markdown(const std::vector<Comparison>& rows) {
  std::string page, source;
  for (const Comparison& row : rows) {
    if (row.source != source) {
      source = row.source;
      page += (page.empty() ? "" : "\n") + ("## " + source) +
              "\n\n| what | published | ours | difference |\n|---|---|---|---|\n";
    }
    page += "| " + row.what + " | " + row.published + " | " + row.ours + " | " + row.explanation +
            " |\n";
  }
  return page;
}

std::vector<Comparison> published_tables(const Networks& networks, const Networks* measured) {
  std::vector<Comparison> rows = pipedream_table(networks);
  if (measured) {
    for (Comparison& row : pipedream_table(*measured, Costs::measured))
      rows.push_back(std::move(row));
  }
  for (Comparison& row : partime_table()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace millrace::bench
