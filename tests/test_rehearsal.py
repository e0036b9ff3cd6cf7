"""A user's architecture or task that does not fit is told before anything runs, once for each state of it."""

import os
import subprocess
import sys

import pytest
from continuity import config, preflight, rehearsal
from continuity.study import Study
from project import ROOT

MINE = """
import torch


class Mixer(torch.nn.Module):
    def __init__(self, d_model, wider=0, late=False):
        super().__init__()
        self.map, self.late = torch.nn.Linear(d_model, d_model + wider), late

    def forward(self, u):
        if self.late:
            raise RuntimeError("only on Tuesdays")
        return self.map(u)


def make(d_model, **options):
    print("a user's module may talk")
    return Mixer(d_model, **options)
"""
NETWORK = {"d_model": 6, "n_layers": 3, "dropout": 0.0}


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "mine_here.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mine_here", None)


def played(options=None, network=NETWORK, **model):
    entry = {"name": "mine", "factory": "mine_here:make", "options": options or {}} | model
    ends = {"where": "forecast", "d_input": 4, "d_output": 2, "length": 9}
    return rehearsal.rehearse({"networks": [ends | {"model": entry, "network": network}], "tasks": []})


@pytest.mark.parametrize(
    "options, words",
    [
        ({"wider": 1}, ["forecast: models: mine", "Mixer must return its input's shape (2, 9, 6), got (2, 9, 7)"]),
        ({"late": True}, ["fails on a batch (2, 9, 6): RuntimeError: only on Tuesdays"]),
        ({"width": 3}, ["TypeError", "width"]),
    ],
)
def test_a_users_model_that_does_not_fit_is_one_line(here, options, words):
    (problem,) = played(options)
    assert all(word in problem for word in words) and "\n" not in problem


def test_a_users_model_that_fits_is_no_problem(here):
    assert played() == []
    assert played(network={"d_model": None, "parameters": 2000, "n_layers": 1, "dropout": 0.0}) == []


def test_a_layer_that_refuses_its_options_or_size_is_one_line(here):
    layer = {"name": "t", "layer": "transformer", "factory": None}
    (problem,) = played({"n_heads": 4}, **layer)
    assert problem == "forecast: models: t: n_heads must divide d_model: 4 does not divide 6"
    (problem,) = played({"n_heads": 2}, {"d_model": None, "parameters": 1, "n_layers": 1, "dropout": 0.0}, **layer)
    assert "no width has within 5% of 1 parameters" in problem


def table(folder, labels, steps=30):
    rows = [f"s{k},{t},{(3 * t + k) % 7},{label}" for k, label in enumerate(labels) for t in range(steps)]
    (folder / "own.csv").write_text("sequence,time,value,label\n" + "\n".join(rows) + "\n")
    return {"name": "own", "path": "own.csv", "sequence": "sequence", "time": "time", "values": ["value"], "label": "label"}


def told(task, stride=1):
    return rehearsal.rehearse({"networks": [], "tasks": [{"task": task, "seed": 0, "stride": stride}]})


def test_a_task_of_one_class_and_sequences_shorter_than_a_stride_are_told(here):
    assert told(table(here, ["a", "b"] * 20)) == []
    assert any("at least two classes are needed" in line for line in told(table(here, ["a"] * 40)))
    lines = told(table(here, ["a", "b"] * 20), stride=40)
    assert lines and all(
        "stride 40 is longer than the shortest sequence of own" in line and "30 steps" in line for line in lines
    )


def test_a_task_is_played_as_its_job_makes_it(here, monkeypatch):
    asked = []
    monkeypatch.setattr(preflight, "_ask", lambda play: asked.append(play) or [])
    found = config.load(ROOT / "config/tiny.yaml")
    task = table(here, ["a", "b"] * 20) | {"curriculum": "only", "permute": 7}
    preflight.check(Study(config.overlay(found, {"tasks": {"list": [*found["tasks"]["list"], task]}})))
    assert rehearsal.rehearse({"networks": [], "tasks": asked[0]["tasks"]}) == []
    with (here / "own.csv").open("a") as file:
        file.write("s0,30,1,a\n")
    lines = rehearsal.rehearse({"networks": [], "tasks": asked[0]["tasks"]})
    assert lines == ["tasks.list: own: task own: permute asks for sequences of one length; theirs are from 30 to 31"]


def test_a_task_whose_file_cannot_be_used_says_where(here):
    task = table(here, ["a", "b"] * 20) | {"label": "klass"}
    lines = told(task)
    assert lines and all(line.startswith("tasks.list: own: ") for line in lines) and "klass" in " ".join(lines)


def mine():
    found = config.overlay(config.load(ROOT / "config/tiny.yaml"), {})
    found["models"] = [*found["models"], {"name": "mine", "factory": "mine_here:make", "options": {}}]
    found["forecast"] = found["forecast"] | {"models": ["s4d", "mine"]}
    return found


def test_a_rehearsal_is_played_once_for_each_state_of_the_users_file(here, monkeypatch):
    asked = []
    monkeypatch.setattr(preflight, "_ask", lambda play: asked.append(play) or [])
    for _ in range(2):
        preflight.check(Study(mine()))
    assert len(asked) == 1
    assert {entry["model"]["name"] for entry in asked[0]["networks"]} >= {"s4d", "s6", "mine"}
    (here / "mine_here.py").write_text(MINE.replace("d_model + wider", "wider + d_model"))
    from continuity import identity

    identity.tree_hash.cache_clear(), identity._parsed.cache_clear(), identity.code_hash.cache_clear()
    preflight.check(Study(mine()))
    assert len(asked) == 2


def test_problems_are_told_again_and_whoever_only_looks_writes_nothing(here, monkeypatch):
    monkeypatch.setattr(preflight, "_ask", lambda play: ["forecast: models: mine: no"])
    for looks in (False, False, True):
        with pytest.raises(config.ConfigError, match="mine: no"):
            preflight.check(Study(mine()), looks)
    asked = []
    monkeypatch.setattr(preflight, "_ask", lambda play: asked.append(play) or [])
    preflight.check(Study(mine()), looks=True)
    assert [entry["model"]["name"] for entry in asked[0]["networks"]] == ["mine"]
    assert not (here / "results").exists()


def test_the_study_ends_with_exit_2_before_anything_runs(here):
    (here / "mine.yaml").write_text(
        "study: wrong\nmodels:\n  - {name: s4d, layer: s4d}\n  - {name: s6, layer: s6}\n"
        "  - {name: mine, factory: 'mine_here:make', options: {wider: 1}}\n"
        "forecast: {models: [s4d, s6, mine]}\n"
    )
    command = [sys.executable, str(ROOT / "scripts/study.py"), "--config", "mine.yaml", "--cores", "1", "--", "-n"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("forecast: models: mine: ") and not (here / "results").exists()
