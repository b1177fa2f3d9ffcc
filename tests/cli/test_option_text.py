"""Completion and the man page, made from the option tree: asked as shells ask."""

import functools
import re

from program import DONE, CliTest, call, needs, output_of

# Sets bash's variables before completion, and prints its answer.
ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_millrace
printf '%s\\n' "${COMPREPLY[@]}"
"""


@functools.cache
def printed(*options):
    """What the program prints for these, asked once: most of such a call is start-up."""
    outcome = call(*options)
    assert outcome.code == DONE, outcome
    return outcome.out


class OptionText(CliTest):
    def offered_by_bash(self, *words):
        """What bash would offer for the last of the words."""
        script = self.folder / "millrace.bash"
        script.write_text(printed("--completion", "bash"))
        return output_of("bash", "--norc", "-c", ASK_BASH, "bash", script, "millrace", *words).split()

    def test_commands_and_options_of_the_command_alone(self):
        """(words; what is among the offers for the last; what is not)"""
        for words, some, others in ((("",), {"run", "check", "inspect", "schedule", "bench"}, set()),
                                    (("run", "--"), {"--set", "--frames", "--report", "--quiet"}, {"--keys"}),
                                    (("check", "--"), {"--keys"}, {"--frames"}), (("--",), {"--version"}, {"--keys"}),
                                    (("run", "my.toml", "--set", "source."), {"source.uri=", "source.width="}, {"model.seed="})):
            offered = set(self.offered_by_bash(*words))
            self.assertLessEqual(some, offered, words)
            self.assertFalse(others & offered, words)

    def test_every_key_is_offered(self):
        keys = [line.split(" = ")[0] for line in printed("check", "--keys").splitlines() if line[0] != " "]
        keys.remove("model.layer")  # tables, which only a file can hold
        self.assertEqual(self.offered_by_bash("run", "--set", ""), [key + "=" for key in keys])

    def test_values_of_keys_and_options(self):
        # Bash splits at "=". Numbers and files have no words to offer.
        for words, offers in ((("run", "--set", "source.pace", "="), ["auto", "live", "asap"]),
                              (("run", "--set", "pipeline.schedule", "=", "pi"), ["pipedream"]),
                              (("run", "--set", "source.loop", "=", "t"), ["true"]),
                              (("run", "--set", "source.pace=l"), ["source.pace=live"]), (("schedule", "part"), ["partime"]), (("sch",), ["schedule"]),
                              (("schedule", "--format", "g"), ["grid"]), (("schedule", "--format", "=", "c"), ["csv"]),
                              (("run", "--frames", ""), []), (("run", "--report", ""), [])):
            self.assertEqual(self.offered_by_bash(*words), offers, words)

    def test_man_page_has_options_keys_and_every_layer(self):
        text = printed("--man").replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        for part in ("millrace run", "--frames", "pipeline.schedule", "zb-h1", "EXIT STATUS", "source.uri"):
            self.assertIn(part, text)
        told = printed("check", "--keys").split("model.layer = []", 1)[1]
        types = re.findall(r"^    (\S+): ", told, re.M)
        self.assertIn("transposed-conv", types)
        for name in types:
            self.assertIn(f"\n.TP\n{name}\n", text)
        for key in re.findall(r"^        (.*)", told, re.M):
            self.assertIn(f"\n.br\n{key}\n", text)

    def test_set_is_given_once_for_each_key_and_shells_are_known(self):
        self.assertRegex(printed("run", "--help"), r"--set table\.key=value +A key")
        self.assert_each_refused(((("run", "--set", "source.width=8", "source.height=8"), "source.height=8"),
                                  (("--completion", "tcsh"), "tcsh")))

    @needs("man")
    def test_man_page_has_no_warnings(self):
        told = output_of("man", "--warnings", "-l", "-", input=printed("--man"))
        self.assertNotIn("warning", told)
        self.assertIn("pipeline.schedule = 'partime'", told)
