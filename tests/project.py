"""A copy of the project in a folder of its own, for tests that edit it and run Snakemake on it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "rules", "scripts", "config", "envs")


class Project:
    """A project folder: edit its files, ask Snakemake what it would do, run it."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in PARTS:
            source = ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            options = {"ignore": shutil.ignore_patterns("__pycache__", "*.egg-info")} if source.is_dir() else {}
            copy(source, folder / part, **options)

    def snakemake(
        self, *flags: str, config: str | None = "config/tiny.yaml", **environment: str
    ) -> subprocess.CompletedProcess:
        overlay = ["--configfile", config] if config else []
        command = [sys.executable, "-m", "snakemake", *overlay, "--cores", "2", *flags]
        return subprocess.run(command, cwd=self.folder, env=os.environ | environment, capture_output=True, text=True)

    def study(self, *flags: str, config: str = "config/tiny.yaml") -> subprocess.CompletedProcess:
        """`make study`: the configuration is checked, then Snakemake runs."""
        command = [sys.executable, "scripts/study.py", "--config", config, "--cores", "2", "--", *flags]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)

    def planned(self, *flags: str, **environment: str) -> set[str]:
        """Jobs that a dry run lists, as rule or rule:value,value in the order of its wildcards."""
        done = self.snakemake("-n", *flags, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        text = done.stdout + done.stderr
        jobs = re.findall(r"^(?:local)?rule (\w+):\n(.*?)(?=^\S|\Z)", text, flags=re.M | re.S)
        named = set()
        for rule, body in jobs:
            values = re.search(r"wildcards: (.*)", body)
            keys = ",".join(item.split("=", 1)[1] for item in values[1].split(", ")) if values else ""
            named.add(f"{rule}:{keys}" if keys else rule)
        return named

    def edit(self, name: str, old: str, new: str) -> "Edit":
        return Edit(self.folder / name, old, new)


class Edit:
    """A replacement in one file, undone at the end of the block; the file's time is restored with it."""

    def __init__(self, path: Path, old: str, new: str):
        self.path, self.old, self.new = path, old, new

    def __enter__(self):
        self.before, self.times = self.path.read_bytes(), self.path.stat()
        text = self.path.read_text(encoding="utf-8")
        assert self.old in text, f"{self.path} does not hold {self.old!r}"
        self.path.write_text(text.replace(self.old, self.new, 1), encoding="utf-8")

    def __exit__(self, *_):
        self.path.write_bytes(self.before)
        os.utime(self.path, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))
