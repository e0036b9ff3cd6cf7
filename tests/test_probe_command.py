"""`continuity probe`: the answer for somebody's own module, from any folder, and one line for each mistake."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from continuity.cli import main

MODULES = """
import torch
from torch import nn
from continuity.layers import build

class Integral(nn.Module):
    def forward(self, u, dt=1.0):
        return nn.functional.pad(u[:, :-1].double().cumsum(1) * dt, (0, 0, 1, 0))

class Sum(nn.Module):
    def forward(self, u):
        return u.cumsum(1)

class Turns(nn.Module):
    "Told the step, and yet it turns by a third with every halving."
    def forward(self, u, step_scale=1.0):
        angle = torch.tensor(2 * torch.pi / 3) * torch.log2(torch.tensor(step_scale))
        return torch.cat([u * torch.cos(angle), u * torch.sin(angle)], -1)

class Mean(nn.Module):
    def forward(self, u):
        return u.mean(1)

class NotFinite(nn.Module):
    def forward(self, u):
        return u / 0

class OneLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(257, 2)
    def forward(self, u):
        return self.map(u[..., 0])

class Scalar(nn.Module):
    def forward(self, u):
        return u.mean()

def chatty():
    print("loading weights")
    return Integral()

def s6():
    torch.manual_seed(0)
    return build("s6", 3)

def broken():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "my models"
    place.mkdir()
    (place / "mine.py").write_text(MODULES)
    monkeypatch.chdir(place)
    return place


def ask(capsys, *argv):
    """(exit status, standard output, lines of standard error)."""
    try:
        main(["probe", *argv])
        status = 0
    except SystemExit as stop:
        status = stop.code
    found = capsys.readouterr()
    return status, found.out, found.err.splitlines()


def answer(capsys, *argv):
    status, out, err = ask(capsys, *argv, "--json")
    assert status == 0, err
    return json.loads(out)


@pytest.mark.parametrize(
    ("factory", "flags", "verdict", "order"),
    [
        ("Integral", ("--step-scale-arg", "dt"), "continuous", 1),
        ("Integral", ("--step-scale-arg", "none"), "no_time_scale", -1),
        ("Sum", (), "no_time_scale", -1),
        ("Mean", (), "continuous", 1),
        ("s6", ("--channels", "3"), "continuous", 1),
    ],
)
def test_the_order_of_a_known_module_is_found(folder, capsys, factory, flags, verdict, order):
    found = answer(capsys, f"mine.py:{factory}", *flags, "--length", "513")
    assert found["verdict"] == verdict
    assert found["order"] == pytest.approx(order, abs=0.1)


def test_a_module_that_turns_with_every_halving_is_not_continuous(folder, capsys):
    found = answer(capsys, "mine.py:Turns")
    assert found["step_scale_arg"] == "step_scale" and found["verdict"] == "not_continuous"
    assert found["order"] == pytest.approx(0, abs=0.05)


def test_the_answer_in_words_shows_order_interval_curve_and_verdict(folder, capsys):
    status, out, _ = ask(capsys, "mine.py:Integral", "--step-scale-arg", "dt", "--length", "257")
    lines = out.splitlines()
    assert status == 0 and "told its step by dt" in lines[0]
    bars = [line.count("#") for line in lines if line.strip().startswith("1/")]
    assert len(bars) == 3 and bars == sorted(bars) and bars[0] > 0
    assert bars[1] - bars[0] == pytest.approx(bars[2] - bars[1], abs=1)
    assert any(line.startswith("order 1.0") and "95 % interval" in line for line in lines)
    assert lines[-1].startswith("Continuous: its outputs converge")


def test_what_the_users_code_prints_does_not_mix_with_json(folder, capsys):
    status, out, err = ask(capsys, "mine.py:chatty", "--step-scale-arg", "dt", "--json", "--length", "129")
    assert status == 0 and "loading weights" in err
    assert json.loads(out)["verdict"] == "continuous"


def test_it_runs_from_any_folder_as_a_command(folder):
    command = [sys.executable, "-m", "continuity.cli", "probe", "mine:Sum", "--length", "65", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "no_time_scale"


def wave_files(folder):
    time = np.linspace(0, 6, 120)
    waves = np.sin(time * np.arange(1, 5)[:, None])
    np.save(folder / "waves.npy", waves[..., None])
    np.savetxt(folder / "waves.csv", np.stack([time, waves[0]], 1), delimiter=",", header="time,x", comments="")
    names = {"series": np.repeat(np.arange(4), 120), "time": np.tile(time, 4), "x": waves.ravel()}
    pq.write_table(pa.table(names), folder / "waves.parquet")


@pytest.mark.parametrize(("name", "n"), [("waves.npy", 4), ("waves.csv", 1), ("waves.parquet", 4)])
def test_it_reads_the_users_sequences(folder, capsys, name, n):
    wave_files(folder)
    found = answer(capsys, "mine.py:Integral", "--step-scale-arg", "dt", "--data", name)
    assert found["n_samples"] == n and found["order"] == pytest.approx(1, abs=0.1)
    # 119 steps between samples, eight finer ones each.
    assert found["length"] == 119 * 8 + 1


def test_thinned_data_give_the_modules_own_step_and_coarser(folder, capsys):
    wave_files(folder)
    flags = ("--step-scale-arg", "dt", "--data", "waves.npy", "--thin")
    _, out, _ = ask(capsys, "mine.py:Integral", *flags)
    assert [line.split("  ")[0].strip() for line in out.splitlines()[3:6]] == ["1 to 2", "2 to 4", "4 to 8"]
    assert answer(capsys, "mine.py:Integral", *flags)["length"] == 113


def test_only_so_many_sequences_are_read(folder, capsys):
    wave_files(folder)
    assert answer(capsys, "mine.py:Mean", "--data", "waves.npy", "--sequences", "2")["n_samples"] == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("mine.py",), "write module:function"),
        (("absent:Sum",), "cannot import absent"),
        (("absent.py:Sum",), "no such file"),
        (("mine.py:Absent",), "has no 'Absent'"),
        (("mine.py:broken",), "no weights here"),
        (("mine.py:NotFinite",), "not finite"),
        (("mine.py:Scalar",), "not to (B, L, D) or (B, k)"),
        (("mine.py:OneLength", "--length", "257"), "fails on inputs of shape (16, 129, 1)"),
        (("mine.py:Sum", "--length", "20"), "too short"),
        (("mine.py:Sum", "--step-scale-arg", "dt"), "takes no argument 'dt'"),
        (("mine.py:Sum", "--thin"), "--thin needs --data"),
        (("mine.py:Sum", "--data", "absent.npy"), "no such file"),
        (("mine.py:Sum", "--data", "junk.npy"), "cannot be read as npy"),
        (("mine.py:Sum", "--data", "holes.npy"), "not finite"),
        (("mine.py:Sum", "--data", "waves.npy", "--channels", "3"), "has 1 channels, not 3"),
        (("mine.py:s6", "--data", "waves.npy"), "S6 needs a real input"),
        (("mine.py:Sum", "--data", "short.npy"), "too short"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(folder, capsys, argv, words):
    wave_files(folder)
    (folder / "junk.npy").write_text("junk")
    np.save(folder / "holes.npy", np.array([[1.0, np.nan, 2.0] * 20]))
    np.save(folder / "short.npy", np.arange(4.0)[None])
    status, out, err = ask(capsys, *argv)
    assert (status, out, len(err)) == (2, "", 1), err
    assert words in err[0]
