"""What people copy learns: every config in README, docs and demos beats its trivial predictor on the street scene."""

import re
import tempfile

import program

FENCE = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


# Files that the reader builds or exports: test_plugins.py, test_export.py and test_gallery.py do
# so.
OWN_FILES = re.compile(r'^plugins = |^masks = |^preset *= "file"|^teacher *= ', re.MULTILINE)


def examples():
    """(name, text) of every config that is shown and complete."""
    for page in [program.ROOT / "README.md", *sorted((program.ROOT / "docs").rglob("*.md")),
                 *sorted((program.ROOT / "demos").rglob("*.md"))]:
        for number, text in enumerate(FENCE.findall(page.read_text())):
            if not OWN_FILES.search(text):
                yield f"{page.relative_to(program.ROOT)} #{number}", text
    for file in sorted((program.ROOT / "demos").rglob("*.toml")):
        if not OWN_FILES.search(file.read_text()):
            yield str(file.relative_to(program.ROOT)), file.read_text()


class Examples(program.CliTest):
    def assert_learns(self, text):
        """As it is, but of the sample video, and with its outputs out of the way."""
        config = self.folder / "config.toml"
        config.write_text(text)
        here = {"source": {"uri": f"file://{program.VIDEO}", "uris": [], "pace": "asap"},
                "output": {key: "" for key in ("weights", "loss_plot", "prediction", "video", "log")}}
        kept = tempfile.mkdtemp(dir=self.folder)  # for this one alone: each has a network of its own
        kept = ["--set", f"checkpoint.dir={kept}"] if "[checkpoint]" in text else []
        report, _ = self.reported("run", config, "--quiet", "--frames", 120, *program.settings(here), *kept)
        self.assertLess(report["loss"]["recent"], report["loss"]["mean_frame"]["recent"])

    def test_every_config_that_is_shown_learns(self):
        shown = list(examples())
        self.assertGreater(len(shown), 3, "else nothing was found")
        for name, text in shown:
            with self.subTest(config=name):
                self.assert_learns(text)

    def test_a_source_is_all_that_must_be_said(self):
        self.assert_learns(f'[source]\nuri = "file://{program.VIDEO}"\n')
