"""Every command starts and ends as a process of its own. All other tests fork one loaded process."""

import unittest

from program import DONE, CliTest, start


class WholeStarts(CliTest):
    def test_every_command_starts_and_ends_by_itself(self):
        plan = self.folder / "plan.json"
        commands = [["--version"], ["check"], ["check", "--keys"], ["inspect", "synth:shapes"],
                    ["schedule", "partime", "--stages", 2, "--samples", 3], ["simulate", "pipedream", "--stages", 2],
                    ["profile", "--json", plan, "--set", "source.width=16", "--set", "source.height=16"], ["plan", plan],
                    ["run", "--quiet", "--frames", 3, "--set", "source.uri=synth:shapes"]]
        for command in commands:
            with self.subTest(command=command), start(*command, env={}) as process:
                out, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, DONE, (out, err))


if __name__ == "__main__":
    unittest.main()
