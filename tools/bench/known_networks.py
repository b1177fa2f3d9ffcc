"""Networks that published tables are about, as profiles worked out from their architecture: what each layer multiplies
and moves, divided by what a V100 does of it in a millisecond. `python3 known_networks.py DIR` writes the large ones."""

import json
import sys
from pathlib import Path

# A V100 with float32 as a roofline: a layer takes the longer of multiplying and moving. At 17.7 TFLOP/s as direct
# convolution counts them (cuDNN's Winograd does with less) forward and backward of 128 pictures through VGG-16 take
# 691 ms; the layers of PipeDream's published profile of it add up to 673. 700 of its 900 GB/s are what kernels are
# taken to reach. LAUNCH_MS: the least a kernel takes, and what starting it costs its host.
FLOPS_PER_MS, BYTES_PER_MS, LAUNCH_MS = 17.7e9, 700e6, 0.01
# What Winograd's F(2x2, 3x3) saves a 3x3 convolution of stride 1 (Lavin and Gray, arXiv 1509.09308), and others lack.
WINOGRAD = 2.25
FLOAT = 4


def ms(flops, moved):
    return max(flops / FLOPS_PER_MS, moved / BYTES_PER_MS, LAUNCH_MS)


class Network:
    def __init__(self, name, batch, inputs):
        self.batch = batch
        self.profile = {"millrace_profile": 1, "network": name, "source": "worked out from the architecture (roofline)",
                        "device": "V100", "frames": batch, "input_bytes": float(FLOAT * batch * inputs),
                        "thread_speedup": [1.0], "hand_offs": [], "modules": []}

    def add(self, name, flops=0, inputs=0, outputs=0, weights=0, passes=1, crossing=0, stash=None):
        """A layer, by numbers of one sample: `passes` over its output, for norms and activations; `crossing`: alive behind
        it besides its output; `stash`: kept for the backward, by default the output."""
        first = not self.profile["modules"]
        once = ms(self.batch * flops, FLOAT * (self.batch * (inputs + passes * outputs) + weights))
        crosses = float(FLOAT * self.batch * (outputs + crossing))
        # A backward multiplies as often again for the input's gradient as for the weights'.
        times = {"forward_ms": once, "input_gradient_ms": 0 if first else once,
                 "weight_gradient_ms": once if weights or first else 0,
                 "update_ms": ms(0, 3 * FLOAT * weights) if weights else 0}
        self.profile["modules"].append(
            {"name": name, **{key: [float(time), 0.0] for key, time in times.items()}, "activation_bytes": crosses,
             "gradient_bytes": crosses, "weight_bytes": float(FLOAT * weights), "state_bytes": 0.0,
             "stash_bytes": float(FLOAT * self.batch * (outputs if stash is None else stash)), "tensor_ways": 1,
             "tensor_bytes": 0.0})

    def conv(self, name, into, out, kernel, side, stride=1, passes=2):
        """Keeps its input's side, or divides it by `stride`."""
        cells = (side // stride) ** 2
        self.add(name, flops=2 * kernel**2 * into * out * cells * (1 if kernel == 3 and stride == 1 else WINOGRAD),
                 inputs=into * side**2, outputs=out * cells, weights=kernel**2 * into * out + out, passes=passes)

    def pool(self, channels, side):
        self.add("pool", inputs=channels * 4 * (side // 2) ** 2, outputs=channels * (side // 2) ** 2)

    def linear(self, name, into, out):
        self.add(name, flops=2 * into * out, inputs=into, outputs=out, weights=into * out + out, passes=2)

    def bottleneck(self, name, into, width, side, stride):
        """1x1, 3x3, 1x1 with four times the channels out, and a 1x1 beside them where the shape changes."""
        before, out = side**2, 4 * width
        cells, projects = before / stride / stride, into != out or stride > 1
        outputs, inner = out * cells, width * before + width * cells
        ones = into * width * before + width * out * cells + (into * out * cells if projects else 0)
        # Each convolution writes, is normalised (two passes) and rectified: four passes and a sum.
        self.add(name, flops=2 * (WINOGRAD if stride > 1 else 1) * 9 * width**2 * cells + 2 * WINOGRAD * ones,
                 inputs=into * before, outputs=outputs, passes=5 + 4 * inner / outputs, stash=2 * (inner + outputs),
                 weights=into * width + 9 * width**2 + width * out + ((into + 2) * out if projects else 0) + 4 * width
                 + 2 * out)


def vgg16(batch=64):
    """Pictures of 224 x 224. Simonyan and Zisserman, arXiv 1409.1556, column D."""
    network, into, side, count = Network("VGG-16", batch, 3 * 224 * 224), 3, 224, 0
    for out, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            network.conv(f"conv{count}", into, out, 3, side)
            into, count = out, count + 1
        network.pool(out, side)
        side //= 2
    for name, into, out in (("fc0", 512 * 7 * 7, 4096), ("fc1", 4096, 4096), ("fc2", 4096, 1000)):
        network.linear(name, into, out)
    return network.profile


def resnet50(batch=128):
    """A module a residual block. He et al., arXiv 1512.03385."""
    network, into, side = Network("ResNet-50", batch, 3 * 224 * 224), 64, 56
    network.conv("stem", 3, 64, 7, 224, 2, 4)
    network.pool(64, 112)
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            network.bottleneck(f"block{width}.{block}", into, width, side, stride if block == 0 else 1)
            into, side = 4 * width, side // stride if block == 0 else side
    network.linear("fc", 2048, 1000)
    return network.profile


def gnmt8(batch=64):
    """Eight LSTM layers of 1024, a vocabulary of 32320, sentences of 24 tokens. Wu et al., arXiv 1609.08144, as PipeDream
    built it. What the decoder reads of the encoder crosses every cut between the two."""
    tokens, wide, words = 24, 1024, 32320
    network, sentence = Network("GNMT-8", batch, 0), tokens * wide

    def lstm(name, into, directions, crossing):
        weights = directions * 4 * wide * (into + wide + 2)
        # A step at a time multiplies small matrices: LSTMs reach two thirds of the rate of one large one.
        network.add(name, flops=1.5 * 2 * weights * tokens, inputs=tokens * into, outputs=sentence * directions,
                    weights=weights, passes=8, crossing=crossing, stash=6 * directions * sentence)

    def embedding(name, crossing):
        network.add(name, inputs=sentence, outputs=sentence, weights=words * wide, crossing=crossing)

    embedding("encoder words", 0)
    lstm("encoder both ways", wide, 2, 0)
    lstm("encoder 1", 2 * wide, 1, 0)
    lstm("encoder 2", wide, 1, sentence)  # read again by the sum behind the next
    lstm("encoder 3", wide, 1, 0)
    embedding("decoder words", sentence)  # what the encoder made goes on to the attention
    lstm("decoder 0, attention", 2 * wide, 1, sentence)
    for layer in (1, 2, 3):
        lstm(f"decoder {layer}", 2 * wide, 1, 2 * sentence if layer < 3 else 0)
    network.add("words", flops=2 * wide * words * tokens, inputs=sentence, outputs=words * tokens,
                weights=wide * words + words)
    return network.profile


def partime_cnn(layers, side, features=16, kernel=5):
    """PARTIME's networks (Meloni et al., arXiv 2210.09147) on one frame."""
    network = Network("partime-cnn", 1, 3 * side**2)
    for i in range(layers):
        network.conv(f"conv{i}", features if i else 3, features if i + 1 < layers else 3, kernel, side)
    return network.profile


if __name__ == "__main__":
    for make in (vgg16, resnet50, gnmt8):
        Path(sys.argv[1], make.__name__ + ".json").write_text(json.dumps(make(), indent=1) + "\n")
