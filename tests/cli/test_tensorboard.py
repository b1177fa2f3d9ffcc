"""`millrace tensorboard`: the event file is, byte for byte, what TensorFlow's record writer makes of protobuf's Events."""

import json
import struct

import program


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(event):
    """A TFRecord's frame: length, CRC of it, bytes, CRC of them."""
    def masked(data):
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def varint(number):
    return bytes([number]) if number < 0x80 else bytes([0x80 | number & 0x7F]) + varint(number >> 7)


def field(number, data):
    """A protobuf field of text or of a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def head(time):
    return record(b"\x09" + struct.pack("<d", time) + field(3, b"brain.Event:2"))


def event_of(line):
    """Of a line of the log: its numbers by name, those of a list as "name/0", ..."""
    lists = {f"{key}/{i}": item for key, value in line.items() if isinstance(value, list) for i, item in enumerate(value)}
    scalars = {key: value for key, value in {**line, **lists}.items()
               if isinstance(value, (int, float)) and key not in ("frame", "time")}
    values = [field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", scalars[tag])) for tag in sorted(scalars)]
    return record(b"\x09" + struct.pack("<d", line["time"]) + b"\x10" + varint(line["frame"]) + field(5, b"".join(values)))


class Tensorboard(program.CliTest):

    def log(self):
        file = self.folder / "run.jsonl"
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 300, 8, 8))
        self.learn({"source": {"uri": uri, "width": 8, "height": 8}, "model": {"layers": 3, "features": 2, "kernel": 3},
                    "pipeline": {"stages": 2, "cut": [2]}, "output": {"log": file, "log_every": 10}})
        return file

    def assert_holds(self, log, lines):
        """What it is converted to; returns what the command says."""
        outcome = self.succeed("tensorboard", log, self.folder / "board")
        (file,) = (self.folder / "board").iterdir()
        self.assertRegex(file.name, r"^events\.out\.tfevents\.\d{10}\.")
        self.assertEqual(file.read_bytes(), head(lines[0]["time"]) + b"".join(map(event_of, lines)))
        return outcome.out

    def test_it_holds_the_log_and_again_when_that_has_grown(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the value that every CRC-32C is known by
        log = self.log()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(len(lines), 30)
        self.assert_holds(log, lines)
        with log.open("a") as file:
            file.write('{"frame":300,"lo\n{"frame":310,"time":2e9,"loss":null}\n')
        told = self.assert_holds(log, [*lines, {"frame": 310, "time": 2e9}])
        self.assertIn("31 frames, 1 lines left out", told)

    def test_bad_usage(self):
        self.assert_each_refused((("tensorboard", log, self.folder), log) for log in ("/nowhere.jsonl", program.VIDEO))
        log = self.folder / "one.jsonl"
        log.write_text('{"frame":0,"time":1.5,"loss":0.5}\n')
        self.assert_refused(program.FAILED, program.call("tensorboard", log, "/proc/nowhere"), "/proc/nowhere")
