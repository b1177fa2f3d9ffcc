"""Targets that are not in the frame: masks, another stream, a teacher, people; and what losses make of them."""

import io
import math
import shutil
import urllib.request

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import program
import reference
from servers import serve

CONV = {"type": "conv", "kernel": 3}
PICTURE = [{**CONV, "out": 4}, {"type": "relu"}, {**CONV, "out": 3}, {"type": "sigmoid"}]
CLASSES = 3
MASKS = [{**CONV, "out": 4}, {"type": "relu"}, {**CONV, "out": CLASSES}]
VECTOR = [{"type": "flatten"}, {"type": "linear", "out": 2}]


def network_of(layers, channels=3):
    """The same in PyTorch, as seed 0 begins."""
    torch.manual_seed(0)
    modules = []
    for layer in layers:
        if layer["type"] == "conv":
            modules.append(nn.Conv2d(channels, layer["out"], layer["kernel"], padding=layer["kernel"] // 2))
            channels = layer["out"]
        elif layer["type"] == "linear":
            modules.append(nn.Linear(channels * 16 * 24, layer["out"]))
        else:
            modules.append({"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "flatten": nn.Flatten}[layer["type"]]())
    return nn.Sequential(*modules)


def ssim(y, t):
    """1 - SSIM of 11 x 11 Gaussian windows (Wang et al. 2004)."""
    place = torch.arange(11.0) - 5
    bell = torch.exp(place * place / (-2 * 1.5 * 1.5))
    line = bell / bell.sum()
    c = 5 * y.shape[1]
    every = torch.cat([y, t, y * y, t * t, y * t], 1)
    means = functional.conv2d(functional.conv2d(every, line.view(1, 1, 11, 1).expand(c, 1, 11, 1), groups=c),
                              line.view(1, 1, 1, 11).expand(c, 1, 1, 11), groups=c)
    y1, t1, yy, tt, yt = means.chunk(5, 1)
    c1, c2 = 0.01 ** 2, 0.03 ** 2
    a, b, ab = y1 * y1, t1 * t1, y1 * t1
    like = (2 * ab + c1) * (2 * (yt - ab) + c2)
    return 1 - (like / ((a + b + c1) * (yy - a + (tt - b) + c2))).mean()


def mean_iou(pairs):
    """Of (truth, told) pairs of class maps, 255 being none, over all their pixels."""
    both, either = numpy.zeros(CLASSES), numpy.zeros(CLASSES)
    for truth, told in pairs:
        seen = truth != 255
        for k in range(CLASSES):
            both[k] += ((truth == k) & (told == k) & seen).sum()
            either[k] += (((truth == k) | (told == k)) & seen).sum()
    return (both[either > 0] / either[either > 0]).mean()


class Targets(reference.ReferenceTest):
    def config(self, frames, layers, **task):
        return {"source": {"uri": program.write_frames(self.folder / "frames", frames), "width": 24, "height": 16},
                "task": task, "model": {"preset": "layers", "layer": layers},
                "pipeline": {"schedule": "sequential", "stages": 1, "capture": "eager"},
                "optimizer": {"kind": "sgd", "lr": 0.1}}

    def masks(self, count):
        """Bands of classes that move, some pixels of no class; none for every fourth frame, one that tells nothing."""
        folder = self.folder / "masks"
        folder.mkdir(exist_ok=True)
        masks = {}
        for n in range(count):
            if n % 4 == 3:
                continue
            mask = numpy.tile((numpy.arange(24) + n) // 4 % CLASSES, (16, 1)).astype(numpy.uint8)
            mask[n % 16, :] = 255
            if n == 5:
                mask[:] = 255
            program.write_png(folder / f"mask_{n:04d}.png", mask[:, :, None])
            if n != 5:
                masks[n] = mask
        return folder, masks

    def test_masks_are_learned_pixel_by_pixel_and_told_of_by_iou(self):
        frames = program.random_frames(1, 24)
        folder, masks = self.masks(24)
        x = reference.tensors(frames)
        samples = [(x[n], torch.from_numpy(mask).long()[None]) for n, mask in masks.items()]
        report, told = self.learn_as(network_of(MASKS), samples, lambda y, t: functional.cross_entropy(y, t, ignore_index=255),
                                     self.config(frames, MASKS, kind="mask", loss="cross-entropy", masks=folder))
        self.assertEqual(report["frames"], {"received": 24, "trained": 17, "dropped": 0, "rejected": 7, "in_flight": 0})
        self.assertEqual(report["task"]["without_target"], 7)
        counts, pairs, usual, hits = numpy.zeros((CLASSES, 16, 24)), [], [], []
        for mask, y in zip(masks.values(), told):
            pairs.append((mask, y[0].argmax(0).numpy()))
            usual.append((mask, counts.argmax(0)))
            hits.append((pairs[-1][1] == mask)[mask != 255].mean())
            for k in range(CLASSES):
                counts[k] += mask == k
        self.assertAlmostEqual(report["iou"]["mean"], mean_iou(pairs), places=6)
        self.assertAlmostEqual(report["iou"]["recent"], mean_iou(pairs), places=6)
        self.assertAlmostEqual(report["iou"]["majority"]["mean"], mean_iou(usual), places=6)
        self.assertAlmostEqual(report["accuracy"]["mean"], numpy.mean(hits), places=6)

    @program.each("eager", "graph")
    def test_a_frame_without_a_mask_costs_its_gradients_and_no_others(self, capture):
        layers = [{**CONV, "out": 4}, {"type": "relu"}, {**CONV, "out": 4}, {"type": "relu"}, MASKS[-1]]
        frames, cut = program.random_frames(1, 24), [2, 4]
        folder, masks = self.masks(24)
        samples = [(x, torch.from_numpy(masks[n]).long()[None] if n in masks else None)
                   for n, x in enumerate(reference.tensors(frames))]
        network = network_of(layers)
        stages = reference.cut_network(network, cut, reference.sgd(0.9, 0.1))
        heads = [reference.auxiliary_head(4, CLASSES, 3, place, reference.sgd(0.9, 0.3), nn.Identity) for place in cut]
        reference.deep_supervision(stages, heads, samples, 0.87,
                                   loss_of=lambda y, sample: functional.cross_entropy(y, sample[1], ignore_index=255))
        tables = self.config(frames, layers, kind="mask", loss="cross-entropy", masks=folder)
        tables["pipeline"] |= {"schedule": "partime", "stages": 3, "cut": cut, "capture": capture}
        tables["optimizer"]["momentum"] = 0.9
        tables["correction"] = {"kind": "deep-supervision", "kernel": 3, "weight": 0.87, "rate": 3.0}
        report, _ = self.learn(tables, trained=len(masks))
        self.assert_weights(network.state_dict(), **({"rtol": 1e-4, "atol": 1e-6} if capture == "graph" else {}))
        self.assertEqual(report["updates"], [len(stage.versions) - 1 for stage in stages])
        self.assertEqual(report["gradient_age"], [4, 2, 0])

    def picture(self, url, name):
        """A picture of the page as [height, width, 3], each pixel once."""
        with urllib.request.urlopen(url + "picture/" + name, timeout=30) as stream:
            _, begin, pictures = stream.read(5000).partition(b"\xff\xd8")
        return numpy.asarray(Image.open(io.BytesIO(begin + pictures)).convert("RGB"))[::2, ::2].astype(int)

    def test_the_page_shows_pixels_classes_as_a_map(self):
        mask = numpy.tile(numpy.arange(24) // 4 % CLASSES, (16, 1)).astype(numpy.uint8)
        mask[8:] = 255
        program.write_frames(folder := self.folder / "masks", [mask[:, :, None]] * 3000)
        tables = self.config(program.random_frames(1, 1), [{**CONV, "out": 3 + CLASSES}], kind="mask", masks=folder,
                             with_input=True, classes=["road", "car", "sky"])
        tables["source"] |= {"uri": "synth:shapes?frames=3000", "pace": "live", "fps": 20}
        tables["task"]["loss"] = [{"kind": "mse", "channels": [0, 3]}, {"kind": "cross-entropy", "channels": [3, CLASSES]}]
        _, page = serve(self, self.write(program.bare(tables)))
        classes = page.state()["classes"]
        self.assertEqual([one["name"] for one in classes], ["road", "car", "sky"])
        colours = numpy.array([[int(one["colour"][at:at + 2], 16) for at in (1, 3, 5)] for one in classes] + [[224, 224, 192]])

        distance = numpy.abs(self.picture(page.url, "target")[:, :, None] - colours).sum(3)
        self.assertLess(distance.min(2).max(), 100)
        target = distance.argmin(2)  # the nearest colours
        self.assertEqual(target[0].tolist(), [n // 4 % CLASSES for n in range(24)])
        self.assertEqual(target[8:].min(), CLASSES, "pixels of no class")

    def test_masks_go_their_frames_way_to_the_samples_size(self):
        frames = program.random_frames(1, 4, height=32, width=48)
        program.write_frames(folder := self.folder / "masks", [numpy.full((32, 48, 1), n % 2, numpy.uint8) for n in range(4)])
        tables = self.config(frames, [{**CONV, "out": 2}], kind="mask", loss="cross-entropy", masks=folder)
        for fit in ("stretch", "crop", "pad"):
            tables["source"] |= {"fit": fit, "width": 20}
            self.learn(tables, trained=4)

    @program.each(("ssim", ssim),
                  ([{"kind": "mse"}, {"kind": "ssim", "weight": 0.5}], lambda y, t: functional.mse_loss(y, t) + 0.5 * ssim(y, t)),
                  (["l1", {"kind": "huber", "channels": [1, 2]}],
                   lambda y, t: functional.l1_loss(y, t) + functional.huber_loss(y[:, 1:3], t[:, 1:3])))
    def test_each_loss_is_pytorchs_to_the_bit(self, loss, of):
        frames = program.random_frames(2, 12)
        pairs, tables = reference.autoencode(frames), self.config(frames, PICTURE)
        settings = ["--set", "task.loss=" + program.toml_value(loss)]
        report, told = self.learn_as(network_of(PICTURE), pairs, of, tables, *settings)
        squared = numpy.mean([functional.mse_loss(y, t).item() for y, (_, t) in zip(told, pairs)])
        self.assertAlmostEqual(report["psnr_db"]["mean"], -10 * math.log10(squared), places=4)
        # Recorded on a core it is the same within rounding.
        tables["pipeline"]["capture"] = "graph"
        recorded, _ = self.learn(tables, *settings)
        self.assertAlmostEqual(recorded["loss"]["mean"], report["loss"]["mean"], places=5)

    def test_classes_of_a_file_are_learned_and_frames_without_one_only_predicted(self):
        # Dark or bright in turns of two; nobody tells the class of every fifth.
        pictures = program.random_frames(3, 40) // 2
        pictures[2::4] += 100
        pictures[3::4] += 100
        x, told = reference.tensors(pictures), [n for n in range(40) if n % 5 != 4]
        names = ["night" if n // 2 % 2 == 0 else "day" for n in range(40)]
        truths = [["day", "night"].index(names[n]) for n in told]  # they are sorted
        samples = [(x[n], torch.tensor([truth])) for n, truth in zip(told, truths)]
        majority, counts = [], [0, 0]
        for truth in truths:
            majority.append(counts.index(max(counts)) == truth)
            counts[truth] += 1
        for file, head, row, smoothing in (("labels.csv", "frame,class\n", "{},{}\n", 0.0),
                                           ("labels.jsonl", "", '{{"frame": {}, "class": "{}"}}\n', 0.1)):
            with self.subTest(file):
                (self.folder / file).write_text(head + "".join(row.format(n, names[n]) for n in told))
                tables = self.config(pictures, VECTOR, kind="label", labels=self.folder / file)
                loss = {"kind": "cross-entropy", "label_smoothing": smoothing}
                report, outputs = self.learn_as(
                    network_of(VECTOR), samples, lambda y, t: functional.cross_entropy(y, t, label_smoothing=smoothing), tables,
                    *program.sets(f"task.loss={program.toml_value(loss)}", "optimizer.lr=0.01"), lr=0.01)
                self.assertEqual(report["frames"], {"received": 40, "trained": 32, "dropped": 0, "rejected": 8, "in_flight": 0})
                self.assertEqual(report["task"], {"kind": "label", "loss": "cross-entropy", "without_target": 8,
                                                  "minibatch_rejected": 0})
                hits = [y.argmax() == truth for y, truth in zip(outputs, truths)]
                self.assertAlmostEqual(report["accuracy"]["mean"], sum(hits).item() / 32)
                self.assertAlmostEqual(report["accuracy"]["majority"]["mean"], sum(majority) / 32)

    def test_a_frame_without_a_class_rejects_its_minibatch(self):
        told = [n for n in range(22) if n not in (5, 21)]  # 5 is in the second of five, 21 in the last, which has 2
        (self.folder / "labels.csv").write_text("frame,class\n" + "".join(f"{n},{n % 2}\n" for n in told))
        tables = self.config(program.random_frames(1, 22), VECTOR, kind="label", labels=self.folder / "labels.csv")
        tables["pipeline"] |= {"schedule": "gpipe"}
        outcome = self.succeed("run", self.write(program.bare(tables)), "--report", self.folder / "report.json")
        report = self.report()
        self.assertEqual(report["frames"], {"received": 22, "trained": 16, "dropped": 0, "rejected": 6, "in_flight": 0})
        self.assertEqual((report["task"]["without_target"], report["task"]["minibatch_rejected"]), (2, 3))
        self.assertIn("6 rejected (2 had no target, 3 shared a minibatch with such a frame)",
                      outcome.out)

    def test_auxiliary_heads_tell_classes_too(self):
        layers = [{**CONV, "out": 4}, {"type": "relu"}, {"type": "flatten"}, {"type": "linear", "out": 3}]
        tables = program.merged(self.config(program.random_frames(1, 1), layers, kind="label"), {
            "source": {"uri": "synth:shapes?scenes=3&switch=2&frames=30"}, "correction": {"kind": "local"},
            "pipeline": {"schedule": "partime", "stages": 2, "cut": [2]}})
        report, _ = self.learn(tables)
        self.assertEqual(report["gradient_age"], [0, 0])

    def test_two_tasks_are_learned_at_once(self):
        frames = program.random_frames(4, 12)
        folder, masks = self.masks(12)
        layers = [{**CONV, "out": 4}, {"type": "relu"}, {**CONV, "out": 3 + CLASSES}]
        x = reference.tensors(frames)
        samples = [(x[n], (x[n], torch.from_numpy(mask).long()[None])) for n, mask in masks.items()]
        report, told = self.learn_as(
            network_of(layers), samples, lambda y, t: functional.mse_loss(y[:, :3], t[0]) +
            functional.cross_entropy(y[:, 3:], t[1], ignore_index=255) * 0.1,
            self.config(frames, layers, kind="mask", masks=folder, with_input=True),
            "--set", "task.loss=" + program.toml_value(
                [{"kind": "mse", "channels": [0, 3]}, {"kind": "cross-entropy", "weight": 0.1, "channels": [3, CLASSES]}]))
        pairs = [(mask, y[0, 3:].argmax(0).numpy()) for mask, y in zip(masks.values(), told)]
        self.assertAlmostEqual(report["iou"]["mean"], mean_iou(pairs), places=6)

    def test_another_streams_frames_are_predicted_frame_by_frame(self):
        here, there = program.random_frames(5, 12), program.random_frames(6, 9)
        tables = self.config(here, PICTURE, kind="stream", stream=program.write_frames(self.folder / "there", there))
        samples = list(zip(reference.tensors(here), reference.tensors(there)))
        report, _ = self.learn_as(network_of(PICTURE), samples, functional.mse_loss, tables)
        self.assertEqual(report["task"]["without_target"], 3)

    def test_two_live_streams_meet_in_time(self):
        tables = self.config(program.random_frames(1, 1), PICTURE, kind="stream", stream="synth:shapes")
        tables["source"] |= {"uri": "gst:videotestsrc is-live=true ! video/x-raw,width=24,height=16"}
        self.learn(tables, "--frames", 30, trained=30)  # a frame without the other stream's is none of them

    def test_a_teacher_is_learned_from(self):
        frames = program.random_frames(7, 12)
        torch.manual_seed(5)
        teacher = network_of(PICTURE)
        with torch.no_grad():
            for parameter in teacher.parameters():
                parameter.mul_(1.5)
        save_file(teacher.state_dict(), self.folder / "teacher.safetensors")
        tables = self.config(frames, PICTURE, kind="teacher", teacher=self.folder / "teacher.safetensors")
        with torch.no_grad():
            samples = [(x, teacher(x)) for x in reference.tensors(frames)]
        self.learn_as(network_of(PICTURE), samples, functional.mse_loss, tables)
        # Beside stages that work at once: the oracle's own rule is tested elsewhere, here that it ends and counts.
        tables["pipeline"] = {"schedule": "partime", "stages": 2, "cut": [2]}
        self.learn(tables, trained=12)

    def test_the_last_frame_is_a_predictor_to_beat(self):
        frames = program.random_frames(8, 6)
        report, _ = self.learn(self.config(frames, PICTURE, kind="next-frame"))
        squared = numpy.mean([functional.mse_loss(x, t).item() for x, t in reference.next_frame(frames)])
        self.assertAlmostEqual(report["loss"]["last_frame"]["mean"], squared, places=6)
        self.assertAlmostEqual(report["psnr_db"]["last_frame"]["mean"], -10 * math.log10(squared), places=4)

    def live(self, labels):
        tables = self.config(program.random_frames(1, 1), VECTOR, kind="label", labels=labels, classes=["day", "night"])
        tables["source"] |= {"uri": "synth:shapes?frames=100000", "pace": "live", "fps": 50}
        tables["optimizer"]["lr"] = 0.001
        return program.write_toml(self.folder / "live.toml", program.bare(tables))

    def test_people_tell_classes_over_http(self):
        report = self.folder / "report.json"
        process, page = serve(self, self.live("http"), "--report", report, token="x" * 20)

        def post(body, **headers):
            return page.request("label", body, **headers)

        def frames(fate):
            return page.state()["frames"][fate]

        self.wait_until(lambda: frames("rejected") > 5, "no frame comes", process)
        self.wait_until(lambda: page.health()[1]["status"] == "waiting for labels", "frames move, and it says they don't", process)
        self.assertEqual(page.health()[0], 200)
        self.assertEqual(post({"class": "day"}, Authorization="Bearer no")[0], 401)
        self.assertEqual(post({"class": "day"}, **{"X-Millrace": "no"})[0], 403)
        self.assertIn("day, night", post({"class": "dusk"})[1])
        self.assertIn("already passed", post({"frame": 0, "class": "day"})[1])
        self.assertEqual(post({"frame": 90000, "class": "day"})[0], 202)
        self.assertEqual(post({"class": "night"})[0], 202)
        self.wait_until(lambda: frames("trained") > 10, "nothing is trained", process)
        self.assertIn("1 label is for frames beyond the end, up to 90000", self.stop(process)[1])
        counts = self.report()
        self.assertGreater(counts["frames"]["trained"], 10)
        self.assertGreater(counts["task"]["without_target"], 5)

    def told_on_standard_input(self, *options, **how):
        """What a run says that learns 20 frames."""
        return program.output_of(program.MILLRACE, "run", self.live("-"), "--frames", "20", "--quiet", *options,
                                 timeout=100, **how)

    @program.each(("nonsense\n", "a label is JSON"), ('{"class": "dusk"}\n' * 20000, 'unknown class "dusk"'))
    def test_people_tell_classes_over_standard_input_and_many_wrong_ones_take_few_lines(self, wrong, told):
        said = self.told_on_standard_input(input=wrong + '{"class": "night"}')  # which counts without its end
        self.assertIn(told, said)
        self.assertLess(len(said.splitlines()), 40)

    def test_standard_input_without_end_does_not_keep_a_run_from_ending(self):
        with open("/dev/zero") as endless:
            self.told_on_standard_input("--set", "source.uri=synth:shapes?frames=10", stdin=endless)

    def test_a_stream_of_targets_that_ended_early_leaves_no_verdict(self):
        report, _ = self.reported("run", "--frames", 60, *program.settings({
            "source": {"uri": "synth:shapes?frames=200", "pace": "live"}, "task": {"kind": "stream", "stream": "synth:shapes?frames=20"},
            "model": {"preset": "partime-cnn", "layers": 2, "features": 2}}), trained=20)
        self.assertIs(report["realtime"]["judged"], False)

    def test_what_does_not_fit_is_one_line(self):
        frames = program.random_frames(1, 4)
        folder, _ = self.masks(3)
        good = self.config(frames, MASKS, kind="mask", loss="cross-entropy", masks=folder)
        program.write_frames(small := self.folder / "small", [numpy.zeros((8, 8, 1), numpy.uint8)])
        empty = self.folder / "empty"
        empty.mkdir()

        def task(**keys):
            return {**good, "task": {**good["task"], **keys}}

        def label(uri=good["source"]["uri"], layers=VECTOR, labels="", **tables):
            return {**good, "source": {**good["source"], "uri": uri}, "model": {"preset": "layers", "layer": layers},
                    "task": {"kind": "label", "labels": labels}, **tables}

        scenes, file = "synth:shapes?scenes=2&frames=9", self.folder / "classes.csv"
        picture = {**good, "model": {"preset": "layers", "layer": PICTURE}}
        for tables, *parts in ((task(masks=small), "task.masks", "0.png: is 8x8, frames are 24x16"),
                               (task(masks=empty), "task.masks", "no pictures found"),
                               (task(masks=""), "mask needs task.masks"),
                               (task(loss="mse"), "task.loss", "cross-entropy"),
                               (task(kind="label"), "task.masks", "is for task.kind \"mask\""),
                               (task(with_input=True), "the network has 3, the first 3 for its input: task.with_input"),
                               (task(classes=["road", "sky"]), "task.classes", "2 names for 3 classes"),
                               (task(classes=["sky", "road", "sky"]), "task.classes", "\"sky\" is named twice"),
                               ({**picture, "task": {"kind": "stream"}}, "stream needs task.stream"),
                               ({**picture, "task": {"kind": "stream", "stream": "ftp://x"}}, "task.stream", "rtsp"),
                               ({**picture, "task": {"kind": "teacher", "teacher": "none.pt"}}, "task.teacher", "none.pt"),
                               ({**picture, "task": {"loss": "ssim"}, "source": {**good["source"], "height": 8}},
                                "task.loss", "11x11"),
                               ({**picture, "task": {"kind": "label", "labels": "http"}}, "task.classes"),
                               ({**picture, "task": {"loss": ["mse", "mso"]}}, "task.loss", "must be one of"),
                               (label(), "needs classes"), (label(scenes, PICTURE), "vector"), (label(labels=file), "classes.csv"),
                               (label(scenes.replace("2", "4")), "4 classes"),
                               (label(scenes, output={"prediction": "x.png"}), "output.prediction"),
                               ({**picture, "task": {"loss": "cross-entropy"}}, "task.kind"),
                               ({**picture, "task": {"labels": "x.csv"}}, "task.labels"),
                               ({**picture, "task": {"horizon": 2}}, "task.horizon")):
            self.assert_refuses("run", program.bare(tables), "config.toml", *parts)
        for text, part in (("frame,class\n0,a\n0,b\n", "classes.csv:3"), ("frame,class\n0,a\n1,b\n2,c\n", "3 classes")):
            file.write_text(text)
            config = self.write(label(labels=file))
            self.assert_each_refused(((command, config), "config.toml", part) for command in ("run", "check"))

    def test_a_mask_that_turns_out_wrong_ends_the_run_and_loses_nothing(self):
        frames = program.random_frames(1, 6)
        folder, _ = self.masks(3)
        shutil.copy(folder / "mask_0000.png", folder / "mask_0003.png")
        program.write_png(folder / "mask_0004.png", numpy.full((16, 24, 1), 9, numpy.uint8))
        _, outcome = self.learn(self.config(frames, MASKS, kind="mask", loss="cross-entropy", masks=folder),
                                code=program.FAILED, trained=4)
        self.assertIn("mask_0004.png: contains class 9, the network has 3", outcome.err)
        self.assertTrue((self.folder / "out.safetensors").exists())
