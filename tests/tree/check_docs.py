"""What the documentation names is there: links, files, commands with their options, config keys."""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FOLDERS = ("capture/", "demos/", "docs/", "engine/", "io/", "stages/", "tests/", "tools/")


class Program:
    """What the built program says of itself."""

    def __init__(self, path):
        self.path = path
        self.keys = {line.split(" = ")[0] for line in self.says("check", "--keys") if not line.startswith(" ")}
        self.tables = {key.split(".")[0] for key in self.keys}
        self.commands = {}

    def says(self, *words):
        return subprocess.run([self.path, *words], capture_output=True, text=True, check=True).stdout.splitlines()

    def options(self, command):
        """The options of a command ("": the program's own), or None if there is no such command."""
        if command not in self.commands:
            done = subprocess.run([self.path, *filter(None, [command]), "--help"], capture_output=True, text=True)
            found = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", done.stdout))
            self.commands[command] = found if done.returncode == 0 else None
        return self.commands[command]


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def broken_link(root, page, target):
    if "://" in target or target.startswith("mailto:"):
        return False
    path, _, part = target.partition("#")
    file = page.parent / path if path else page
    if not file.exists():
        return True
    if page.is_relative_to(root / "docs") and not file.resolve().is_relative_to(root / "docs"):
        return True  # the site has docs/ alone
    return bool(part) and part not in {anchor(title) for title in re.findall(r"^#+ (.*)$", file.read_text(), re.M)}


def faults_of(root, page, program):
    text = page.read_text()
    for target in LINK.findall(text):
        if broken_link(root, page, target):
            yield f"no {target}"
    for code in CODE.findall(text):
        if code.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", code) and not (root / code).exists():
            yield f"no file {code}"
        key = re.match(r"([a-z]+)\.([a-z_]+)(?= =|$)", code)
        if key and key[1] in program.tables and key[0] not in program.keys and not (root / code).exists():
            yield f"no config key {code}"
    for key in re.findall(r"--set ([a-z]+\.[a-z_]+)=", text):
        if key not in program.keys | {"table.key"}:
            yield f"no config key {key}"
    for words in re.findall(r"(?:^    (?:build/release/)?|`)millrace ([^`\n#]+)", text, re.M):
        command = words.split()[0] if re.match(r"[a-z]", words) else ""
        options = program.options(command)
        if options is None:
            yield f"no command {command}"
            continue
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", words):
            if option not in options:
                yield f"millrace {command} takes no {option}"


def main():
    root, program = pathlib.Path(sys.argv[1]).resolve(), Program(sys.argv[2])
    pages = [root / "README.md", root / "ARCHITECTURE.md", *sorted((root / "docs").rglob("*.md")),
             *sorted((root / "demos").rglob("*.md"))]
    faults = [f"{page.relative_to(root)}: {fault}" for page in pages for fault in faults_of(root, page, program)]
    navigation = (root / "tools/mkdocs.yml").read_text()
    for page in (root / "docs").rglob("*.md"):
        if str(page.relative_to(root / "docs")) not in navigation:
            faults.append(f"tools/mkdocs.yml does not lead to {page.relative_to(root)}")
    print("\n".join(faults) or f"{len(pages)} pages name what is there")
    sys.exit(bool(faults))


main()
