"""`millrace schedule`: the staircase for people, the CSV for PyTorch."""

import program


class Text(program.CliTest):

    def printed(self, *arguments):
        outcome = self.succeed("schedule", *arguments)
        return outcome.out

    def test_staircase(self):
        out = self.printed("gpipe", "--stages", "2", "--samples", "2", "--microbatches", "2")
        self.assertEqual(out.splitlines()[:2], ["stage 0 F0  F1  .   .   B0  B1U ",
                                                "stage 1 .   F0  F1  B0  B1U .   "])
        self.assertIn("bubble         33.3 %", out)
        self.assertIn("gradient age   0 0", out)

    def test_samples_that_fill_no_minibatch_are_named(self):
        out = self.printed("1f1b", "--stages", "2", "--samples", "6")
        self.assertIn("left out       the last 2 of 6 samples, which fill no minibatch of 4", out)
        self.assertNotIn("left out", self.printed("partime", "--stages", "2", "--samples", "6"))

    def test_updates_have_a_place_where_nothing_flushes(self):
        out = self.printed("pipedream", "--stages", "2", "--samples", "3", "--format", "csv")
        self.assertIn("0B0,0U0,0F2^1", out.splitlines()[0])

    def test_help_says_what_each_schedule_does(self):
        help_text = program.call("schedule", "--help").out
        for name in ("1f1b", "2bw", "gpipe", "interleaved", "partime", "pb", "pipedream", "sequential", "zb-h1"):
            self.assertRegex(help_text, rf"(?m)^  {name} +\w.{{20,}}$")

    def test_bad_usage(self):
        self.assert_each_refused(((("schedule", "gpip"), "gpipe"), (("schedule", "2bw", "--stages", "8"), "microbatches"),
                                  *((("schedule", "partime", "--stages", stages), "--stages") for stages in (0, 1025, 10000000))))

    def test_many_stages_say_that_they_take_a_while(self):
        outcome = self.succeed("schedule", "1f1b", "--stages", "400", "--microbatches", "8", "--samples", "8", "--format", "csv")
        self.assertEqual(outcome.err, "400 stages take a while\n")
        self.assertEqual(len(outcome.out.splitlines()), 400)
