"""Set-up: one clear line when something it needs is missing, nothing where it is up to date."""

import os
import subprocess
import sys

import pytest
from project import ROOT, Project


@pytest.fixture
def project(tmp_path):
    found = Project(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return found


def setup(project, **environment):
    command = ["sh", "envs/setup.sh"]
    return subprocess.run(command, cwd=project.folder, env=os.environ | environment, capture_output=True, text=True)


def only_line(done):
    lines = [line for line in done.stderr.strip().splitlines() if line]
    assert done.returncode == 2 and len(lines) == 1, done.stdout + done.stderr
    return lines[0]


def test_a_missing_python_is_one_line(project):
    assert only_line(setup(project, PYTHON="/no/such/python")) == "setup: PYTHON=/no/such/python: no such program"


def test_a_python_that_is_too_old_is_one_line(project, tmp_path):
    old = tmp_path / "old python"
    old.write_text(f'#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\nexec "{sys.executable}" "$@"\n')
    old.chmod(0o755)
    assert "needs Python 3.11" in only_line(setup(project, PYTHON=str(old)))


def test_a_missing_network_is_one_line_and_leaves_no_stamp(project):
    closed = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_NO_CACHE_DIR": "1",
    }
    quick = {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "2", "PIP_CONFIG_FILE": os.devnull}
    done = setup(project, PYTHON=sys.executable, **closed, **quick)
    assert "no package index can be reached" in only_line(done)
    assert not (project.folder / ".venv" / ".installed").exists()


def test_an_environment_that_is_up_to_date_is_left_alone_in_silence(project):
    text = (project.folder / "envs/requirements.lock").read_bytes() + (project.folder / "pyproject.toml").read_bytes()
    stamp = subprocess.run(["cksum"], input=text, capture_output=True, check=True).stdout.decode().strip()
    (project.folder / ".venv").mkdir()
    (project.folder / ".venv" / ".installed").write_text(stamp + "\n")
    done = setup(project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
