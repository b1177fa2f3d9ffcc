"""Every command starts and ends as a process of its own. All other tests fork one loaded process."""

import os
import resource
import subprocess
import unittest

from program import BAD_USAGE, DONE, FAILED, MILLRACE, CliTest, start


def run_within(limit, value):
    return subprocess.run([MILLRACE, "run", "--quiet", "--frames", "3", "--set", "source.uri=synth:shapes"],
                          preexec_fn=lambda: resource.setrlimit(limit, (value, value)), capture_output=True, text=True, timeout=120)


class WholeStarts(CliTest):
    def test_every_command_starts_and_ends_by_itself(self):
        plan = self.folder / "plan.json"
        commands = [["--version"], ["check"], ["check", "--keys"], ["inspect", "synth:shapes"],
                    ["schedule", "partime", "--stages", 2, "--samples", 3], ["simulate", "pipedream", "--stages", 2],
                    ["profile", "--json", plan, "--set", "source.width=16", "--set", "source.height=16"], ["plan", plan], ["simulate", "partime", "--stages", 2, "--profile", plan],
                    ["run", "--quiet", "--frames", 3, "--set", "source.uri=synth:shapes"]]
        for command in commands:
            with self.subTest(command=command), start(*command, env={}) as process:
                out, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, DONE, (out, err))

    def test_output_that_finds_no_room_is_one_line(self):
        for samples in (3, 3000):  # less and more than a buffer
            words = [MILLRACE, "schedule", "partime", "--stages", "2", "--samples", str(samples)]
            with open("/dev/full", "w") as full:
                done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stderr), (FAILED, "millrace: error: standard output can't be written\n"))

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "a sanitizer takes more of the stack")
    def test_too_low_a_limit_ends_in_a_line(self):
        for limit, value, line in ((resource.RLIMIT_STACK, 64 << 10, "a thread's stack may take 64 KiB (ulimit -s): raise it to 1024"),
                                   (resource.RLIMIT_NOFILE, 8, "open files may be 8 (ulimit -n): raise it to 32")):
            done = run_within(limit, value)
            self.assertEqual((done.returncode, done.stderr), (FAILED, f"millrace: error: {line}\n"))

    def test_a_deleted_folder_ends_in_a_line(self):
        gone = self.folder / "gone"
        gone.mkdir()
        done = subprocess.run(["sh", "-c", "rmdir ../gone; exec \"$0\" run --quiet --frames 3 --set source.uri=synth:shapes", MILLRACE],
                              cwd=gone, capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (BAD_USAGE, "millrace: error: the current folder was deleted: start in another\n"))

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "a sanitizer takes terabytes of address space")
    def test_too_little_address_space_ends_in_a_line(self):
        told = ""
        for limit in range(512 << 20, 6 << 30, 512 << 20):
            done = run_within(resource.RLIMIT_AS, limit)
            if done.returncode == DONE:
                break
            self.assertIn(done.returncode, (FAILED, 127), done)  # 127: the loader's
            self.assertEqual(len(done.stderr.splitlines()), 1, done)
            told += done.stderr
        self.assertIn("ulimit -v", told)
