"""`millrace bench tables`: published results, and those of plan and simulate for the same networks and machines.
Measures nothing, so results are the same everywhere."""

import json

from measuring import HERE

# Large networks computed from their architecture: a layer takes the longer of its multiplications, at a V100's 17.7
# TFLOP/s of float32, and its traffic, at 700 of its 900 GB/s: 691 ms for forward and backward of 128 pictures through
# VGG-16, where PipeDream's published profile adds up to 673. VGG-16 is Simonyan and Zisserman's column D (arXiv 1409.1556), ResNet-50 has one module per residual
# block (He et al., arXiv 1512.03385), GNMT-8 eight LSTM layers of 1024, a vocabulary of 32320 and sentences of 24
# tokens (Wu et al., arXiv 1609.08144), as PipeDream built it.
PROFILES = HERE.parents[1] / "docs" / "benchmarks" / "profiles"
# PipeDream's Cluster-A: servers of 4 V100 on PCIe, 10 Gbit/s between them; Cluster-B: of 8 on NVLink, 25 Gbit/s.
CLUSTERS = {"A": (1.25, 10), "B": (3.125, 30)}  # GB/s between and within servers

PIPEDREAM = [("vgg", "VGG-16, 4x4 V100, Cluster-A", "15-1", 5.28), ("vgg", "VGG-16, 2x8 V100, Cluster-B", "15-1", 2.98),
             ("resnet", "ResNet-50, 4x4 V100, Cluster-A", "16", 1.0), ("resnet", "ResNet-50, 2x8 V100, Cluster-B", "16", 1.0),
             ("gnmt", "GNMT-8, 3x4 V100, Cluster-A", "straight", 2.95)]


def row(source, what, published, ours, published_figure, our_figure):
    return {"arm": f"{source}: {what}", "source": source, "what": what, "published": published, "ours": ours,
            "published_figure": published_figure, "our_figure": our_figure}


def with_frames(profile, factor):
    """A profile for `factor` times the frames: times and per-sample memory scale, weights do not."""
    def scaled(key, value):
        if key.endswith("_ms"):
            return [part * factor for part in value]
        return value * factor if key in ("activation_bytes", "gradient_bytes", "stash_bytes", "tensor_bytes") else value

    return {**profile, "frames": max(1, int(profile["frames"] * factor + 0.5)), "input_bytes": profile["input_bytes"] * factor,
            "modules": [{key: scaled(key, value) for key, value in module.items()} for module in profile["modules"]]}


def pipedream(machine, networks, source):
    """Table 1 of PipeDream (Narayanan et al., SOSP 2019): configuration, and epoch time against data parallel."""
    rows = []
    for network, what, configuration, speedup in PIPEDREAM:
        devices, cluster = what.split()[1], CLUSTERS[what[-1]]

        def planned(share):
            cuts = machine.cuts(profile=networks[network], devices=devices, schedule="pipedream", overlap="all",
                                links=f"{share * cluster[0]},{cluster[1]}")
            straight = len(cuts["replicas"]) > 1 and set(cuts["replicas"]) == {1}
            return ("straight" if straight else "-".join(map(str, cuts["replicas"])),
                    cuts["parallel_ms"] / cuts["best_ms"], cuts["parallel_ms"] / cuts["straight_ms"])

        half, full = planned(0.5), planned(1.0)
        ours = "{}, {:.3g}x; straight {:.3g}x"
        rows.append(row(source, what, f"{configuration}, {speedup:.3g}x",
                        f"{ours.format(*half)} (at the full rate of the network {ours.format(*full)})", speedup,
                        half[2] if configuration == "straight" else half[1]))
    return rows


def schedules(machine):
    """GPipe's and interleaved 1F1B's bubbles, and 2BW against GPipe and 1F1B, for the page of bench seeds."""
    # Equal transformer layers: forward 1 ms, backward 2, 100 MB of weights, 300 MB saved.
    layers = {"millrace_profile": 1, "network": "equal layers", "source": "", "device": "", "modules": [
        {"name": f"layer{i}", "forward_ms": 1, "input_gradient_ms": 0, "weight_gradient_ms": 2, "update_ms": 0,
         "activation_bytes": 0, "gradient_bytes": 0, "weight_bytes": 100e6, "stash_bytes": 300e6} for i in range(32)]}

    def outcome(p, schedule, m, v=2):
        return machine.outcome(profile=layers, devices=str(p), schedule=schedule, microbatches=m, virtual_stages=v)

    def bubble(source, p, m, schedule, chunks=1):
        published, ours = (p - 1) / (chunks * m), outcome(p, schedule, m, chunks)["bubble"]
        what = f"bubble, {p} stages, {m} microbatches" + (f", {chunks} chunks" if chunks > 1 else "")
        return row(source, what, f"{published:.6g}", f"{ours:.6g}", published, ours)

    shapes = ((2, 4), (4, 8), (8, 32))
    rows = [bubble("GPipe, arXiv 1811.06965: (p-1)/m", p, m, "gpipe") for p, m in shapes]
    rows += [bubble("Megatron-LM, arXiv 2104.04473, section 2.2: (p-1)/(v m)", p, m, "interleaved", v)
             for p, m in shapes for v in (2, 4)]
    p = 8
    for m in (8, 32):
        for other in ("gpipe", "1f1b"):
            two, flushing = outcome(p, "2bw", m), outcome(p, other, m)
            on = f"{other} and 2bw, {p} equal stages, {m} microbatches"
            formula, rate = (m + p - 1) / m, flushing["sample_ms"] / two["sample_ms"]
            rows.append(row("PipeDream-2BW, arXiv 2006.09503: no flush", f"time a sample, {on}",
                            f"(m+p-1)/m = {formula:.6g}", f"{rate:.6g}", formula, rate))
            # A stage of 32/p layers, each with 0.1 GB per version and gradient, and 0.3 GB per sample.
            samples = m if other == "gpipe" else min(m, p)
            formula = (2 * 0.1 + samples * 0.3) / (3 * 0.1 + p * 0.3)
            memory = flushing["peak_bytes"] / two["peak_bytes"]
            rows.append(row("PipeDream-2BW, arXiv 2006.09503: two versions", f"memory, {on}", f"{formula:.6g}",
                            f"{memory:.6g}", formula, memory))
    return rows


def published(machine, options):
    worked_out = {name: json.loads((PROFILES / f"{file}.json").read_text())
                  for name, file in (("vgg", "vgg16"), ("resnet", "resnet50"), ("gnmt", "gnmt8"))}
    source = "PipeDream, SOSP 2019, table 1"
    rows = pipedream(machine, worked_out, source)
    if options.profiles:  # of minibatches of 128
        theirs = {"vgg": ("image_classification/profiles/vgg16", 64), "resnet": ("image_classification/profiles/resnet50", 128),
                  "gnmt": ("translation/profiles/gnmt_large", 64)}
        measured = {name: with_frames(machine.profile(path=f"{options.profiles}/{path}/graph.txt", frames=128), frames / 128)
                    for name, (path, frames) in theirs.items()}
        rows += pipedream(machine, measured, f"{source}, from its authors' profiles")
    return {"profiles": options.profiles, "arms": rows, "threads": 1}
