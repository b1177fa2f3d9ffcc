// What each schedule keeps in memory, and what it makes of a bottleneck: the part of a schedule
// that planning needs, as formulas. Tests hold them against the schedules themselves.
#pragma once

#include <string>  // names

namespace millrace::engine::plan {

struct Rule {
  bool flushes = false;      ///< the pipeline runs empty at each update
  bool minibatches = false;  ///< `microbatches` samples make an update; else each one does
  bool replicates = false;   ///< a stage may run on several devices that take turns
};

/// Throws std::invalid_argument for a name that make_schedule() does not take.
Rule rule_of(const std::string& schedule);

/// Versions of its weights that a stage keeps whose samples are `depth` deep in flight: the stage's
/// own and those of each stage downstream, N - i for stage i of N. pipedream: depth (Narayanan et
/// al., SOSP 2019, section 3.3); 2bw: 2 (arXiv 2006.09503); others: 1.
int versions_kept(const std::string& schedule, int depth);

/// Samples that a stage keeps saved activations of, at most. gpipe: a minibatch. 1f1b, zb-h1:
/// min(m, N - i). pipedream, 2bw: N - i. pb: 2(N - i) - 1, as forwards run ahead a tick at a time.
/// partime, sequential: 1, as a sample goes backward right after its forward, or alone.
int samples_kept(const std::string& schedule, int depth, int microbatches);

/// interleaved: chunks that worker `worker` of `workers` keeps activations of, at most. Its warm-up
/// is 2(p - w - 1) + (v - 1)p chunks (Megatron-LM, arXiv 2104.04473, section 2.2), and one more.
int chunks_kept(int worker, int workers, int virtual_stages, int microbatches);

}  // namespace millrace::engine::plan
