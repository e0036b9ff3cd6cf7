"""One Slurm for all tests of this folder, and copies of the project that send their jobs to it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from project import Project
from slurm import Cluster, Unavailable

QUICK = {
    "slurm-init-seconds-before-status-checks": 2,
    "seconds-between-status-checks": 2,
    "latency-wait": 10,
    "jobs": 20,
}
"""What a cluster of one idle node needs other than the profile says."""


@pytest.fixture(scope="session")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    found = Cluster(folder)
    try:
        yield found.start()
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


class OnSlurm(Project):
    """A copy of the project with the shipped profile, made quick; `start` runs a study on the cluster."""

    def __init__(self, folder: Path, **rules: dict):
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        profile = yaml.safe_load((folder / "config/profiles/slurm/config.yaml").read_text())
        profile |= QUICK
        profile |= {"set-resources": rules} if rules else {}
        (folder / "quick").mkdir()
        (folder / "quick/config.yaml").write_text(yaml.safe_dump(profile))

    def start(
        self, *flags: str, config: str = "config/tiny.yaml", log: str = "slurm.txt", **environment: str
    ) -> subprocess.Popen:
        """`make study` with the profile; its output goes to the file `log`, and it ends on its own after a quarter of an hour."""
        command = [sys.executable, "scripts/study.py", "--config", config, "--cores", "2", "--", *flags, "--profile", "quick"]
        with open(self.folder / log, "w") as out:
            return subprocess.Popen(
                ["/usr/bin/timeout", "-s", "INT", "900", *command], cwd=self.folder, env=os.environ | environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def said(self, log: str = "slurm.txt") -> str:
        return (self.folder / log).read_text()


@pytest.fixture
def home(cluster, tmp_path):
    return OnSlurm(tmp_path / "project")
