"""`millrace run` on "cuda" ends with the weights that the update rules give in plain PyTorch, to the bit."""

import unittest

import delayed_rules
import test_reference
import test_schedules


# A product with a half is exact, so that it matters to no bit whether the update's kernel fuses it with the sum.
test_reference.LR = 0.5


class OnDevice:
    """Every run is recorded on a CUDA device, and the report says so."""

    def learn(self, tables, *options, **named):
        pipeline = {**tables["pipeline"], "devices": "cuda", "capture": "graph"}
        report, outcome = super().learn({**tables, "pipeline": pipeline}, *options, **named)
        self.assertEqual(set(report["devices"]), {"cuda:0"})
        return report, outcome


class Partime(OnDevice, test_reference.Reference):

    def test_partime(self):
        for cut in [], [4], [2, 5], [2, 4, 6]:
            with self.subTest(cut=cut):
                self.compare(cut)


class Schedules(OnDevice, test_schedules.Schedules):
    """All that the base class has: each schedule of PyTorch's rules."""

    test_replicated_stages = None  # can't be recorded


if __name__ == "__main__":
    unittest.main()
