"""`millrace tensorboard`: the event file, read back by a decoder of our own that checks every CRC."""

import json
import math
import struct

import program


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """What TFRecord's frames hold; each frame is length, CRC of it, bytes, CRC of them."""
    while data:
        (length, crc), data = struct.unpack("<QI", data[:12]), (data[:8], data[12:])
        head, data = data
        assert crc == masked(head), "a length's CRC is wrong"
        record, tail, data = data[:length], data[length:length + 4], data[length + 4:]
        assert struct.unpack("<I", tail)[0] == masked(record), "a record's CRC is wrong"
        yield record


def varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return number, at


def fields(data):
    """A protobuf message's (field, value) pairs; values as bytes but for varints."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            if key & 7 == 2:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def event(record):
    """(time, step, file version, {tag: value})."""
    time, step, version, scalars = None, 0, None, {}
    for field, value in fields(record):
        if field == 1:
            (time,) = struct.unpack("<d", value)
        elif field == 2:
            step = value
        elif field == 3:
            version = value.decode()
        elif field == 5:
            for _, item in fields(value):
                parts = dict(fields(item))
                scalars[parts[1].decode()] = struct.unpack("<f", parts[2])[0]
    return time, step, version, scalars


class Tensorboard(program.CliTest):

    def log(self):
        file = self.folder / "run.jsonl"
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 300, 8, 8))
        self.learn({"source": {"uri": uri, "width": 8, "height": 8}, "model": {"layers": 3, "features": 2, "kernel": 3},
                    "pipeline": {"stages": 2, "cut": [2]}, "output": {"log": file, "log_every": 10}})
        return file

    def converted(self, log):
        folder = self.folder / "board"
        outcome = self.succeed("tensorboard", log, folder)
        (file,) = folder.iterdir()
        self.assertRegex(file.name, r"^events\.out\.tfevents\.\d{10}\.")
        return [event(record) for record in records(file.read_bytes())], outcome

    def test_it_holds_the_log(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the value that every CRC-32C is known by
        log = self.log()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (head, *events), _ = self.converted(log)
        self.assertEqual((head[0], head[2]), (lines[0]["time"], "brain.Event:2"))
        self.assertEqual(len(events), 30)
        for line, (time, step, _, scalars) in zip(lines, events):
            self.assertEqual((time, step), (line["time"], line["frame"]))
            flat = {key: value for key, value in line.items() if isinstance(value, (int, float))}
            flat |= {f"{key}/{i}": item for key, value in line.items() if isinstance(value, list)
                     for i, item in enumerate(value)}
            del flat["frame"], flat["time"]
            self.assertEqual(scalars.keys(), flat.keys())
            for key, value in flat.items():
                self.assertTrue(math.isclose(scalars[key], value, rel_tol=1e-6), key)
        self.assertEqual("fps" in events[0][3], False)  # unknown at the first line
        self.assertEqual("fps" in events[1][3], True)

    def test_again_when_the_log_has_grown_replaces_it_and_torn_lines_are_told_of(self):
        log = self.log()
        self.converted(log)
        with log.open("a") as file:
            file.write('{"frame":300,"lo\n{"frame":310,"time":2e9,"loss":null}\n')
        (*_, last), outcome = self.converted(log)
        self.assertEqual(last, (2e9, 310, None, {}))
        self.assertIn("31 frames, 1 lines left out", outcome.out)

    def test_bad_usage(self):
        self.assert_each_refused((("tensorboard", log, self.folder), log) for log in ("/nowhere.jsonl", program.VIDEO))
        log = self.folder / "one.jsonl"
        log.write_text('{"frame":0,"time":1.5,"loss":0.5}\n')
        self.assert_refused(program.FAILED, program.call("tensorboard", log, "/proc/nowhere"), "/proc/nowhere")
