"""`millrace bench tables`: published results, and those of plan and simulate for the same networks and machines.
Measures nothing, so results are the same everywhere."""

import json

from measuring import HERE

# Large networks computed from their architecture: each layer's multiplications and traffic, divided by a V100's per
# millisecond. VGG-16 is Simonyan and Zisserman's column D (arXiv 1409.1556), ResNet-50 has one module per residual
# block (He et al., arXiv 1512.03385), GNMT-8 eight LSTM layers of 1024, a vocabulary of 32320 and sentences of 24
# tokens (Wu et al., arXiv 1609.08144), as PipeDream built it.
PROFILES = HERE.parents[1] / "docs" / "benchmarks" / "profiles"
# A V100 with float32 as a roofline: a layer takes the longer of compute and traffic. At 17.7 TFLOP/s, counted as for
# direct convolution (cuDNN's Winograd needs fewer), forward and backward of 128 pictures through VGG-16 take 691 ms;
# the layers of PipeDream's published profile add up to 673. Kernels are assumed to reach 700 of its 900 GB/s.
# LAUNCH_MS: the least a kernel takes, and the host's time to launch it.
FLOPS_PER_MS, BYTES_PER_MS, LAUNCH_MS = 17.7e9, 700e6, 0.01
# The factor that Winograd's F(2x2, 3x3) saves in 3x3 convolutions of stride 1 (Lavin and Gray, arXiv 1509.09308) only.
WINOGRAD = 2.25

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


def profile_of(name, modules):
    return {"millrace_profile": 1, "network": name, "source": "", "device": "", "modules": modules}


def partime_cnn(layers, side, features=16, kernel=5):
    """PARTIME's networks (Meloni et al., arXiv 2210.09147) on one frame."""
    def conv(i):
        into, out, cells = features if i else 3, features if i + 1 < layers else 3, side**2
        weights = kernel**2 * into * out + out
        moved = 4 * (cells * (into + 2 * out) + weights)  # the activation is a second pass over the output
        once = max(2 * kernel**2 * into * out * cells * WINOGRAD / FLOPS_PER_MS, moved / BYTES_PER_MS, LAUNCH_MS)
        # A backward multiplies as often for the input's gradient as for the weights'.
        return {"name": f"conv{i}", "forward_ms": once, "input_gradient_ms": once if i else 0, "weight_gradient_ms": once,
                "update_ms": max(12 * weights / BYTES_PER_MS, LAUNCH_MS), "activation_bytes": 4 * out * cells,
                "gradient_bytes": 4 * out * cells, "weight_bytes": 4 * weights, "stash_bytes": 4 * out * cells}

    return profile_of("partime-cnn", [conv(i) for i in range(layers)])


def partime_speedup(machine, layers, side, stages, starting_costs):
    """Speed-up over one GPU. Unless recorded, one host launches a frame's kernels, six per layer, one by one, which
    bounds its time from below."""
    cuts = machine.cuts(profile=partime_cnn(layers, side), devices=str(stages), links="10:0.005",
                        overlap="transfers", schedule="partime")
    host = 6 * layers * LAUNCH_MS if starting_costs else 0
    return max(host, cuts["work_ms"]) / max(host, cuts["straight_ms"])


def partime(machine):
    rows = []
    for layers in (10, 30):
        for side in (64, 256, 512):
            for costs in (True, False):
                ours = [partime_speedup(machine, layers, side, stages, costs) for stages in range(2, 9)]
                how = "kernels started one by one" if costs else "kernels recorded"
                rows.append(row(
                    "PARTIME, arXiv 2210.09147, section 4", f"{layers} layers, {side} x {side}, 2 to 8 GPUs, {how}",
                    "grows with depth and resolution, levels off for shallow networks",
                    " ".join(f"{value:.2f}" for value in ours), None, ours[-1]))
    return rows


def schedules(machine):
    """GPipe's and interleaved 1F1B's bubbles, and 2BW against GPipe and 1F1B, for the page of bench seeds."""
    # Equal transformer layers: forward 1 ms, backward 2, 100 MB of weights, 300 MB saved.
    layers = profile_of("equal layers", [
        {"name": f"layer{i}", "forward_ms": 1, "input_gradient_ms": 0, "weight_gradient_ms": 2, "update_ms": 0,
         "activation_bytes": 0, "gradient_bytes": 0, "weight_bytes": 100e6, "stash_bytes": 300e6} for i in range(32)])

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
    return {"profiles": options.profiles, "arms": rows + partime(machine), "threads": 1}
