"""The frame of a stage: a user's mistake is one line and exit 2; finished runs are kept under their own identity."""

import errno
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from continuity import locks, stage, tables
from continuity.problems import Problem
from continuity.runs import METER, Ledger, digest, folder, machine

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").glob("*.py"))
ROW = {"system": "vdp", "eta": 0.0, "construction": "balanced", "mu": 0.5}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_explains_itself(name):
    done = subprocess.run([sys.executable, ROOT / "scripts" / name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout


def run(capsys, work, *flags, inputs=None, outputs=("rows",)):
    with pytest.raises(SystemExit) as left:
        stage.run("mixtures", "Test.", work, outputs, inputs or {}, list(flags))
    assert left.value.code == 2
    return capsys.readouterr().err.strip().splitlines()


def test_each_problem_is_one_line_and_nothing_is_written(capsys, tmp_path):
    def work(job):
        raise Problem(["a.csv: row 3: not a number", "a.csv: row 9: not a number"])

    lines = run(capsys, work, "--cfg", "{}", "--rows", str(tmp_path / "rows.parquet"))
    assert lines == ["a.csv: row 3: not a number", "a.csv: row 9: not a number"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_input_is_named(capsys, tmp_path):
    lines = run(capsys, print, "--cfg", "{}", "--rows", str(tmp_path / "r"), inputs={"states": "trajectories"})
    assert lines == ["mixtures: input states is missing; give --inputs states=PATH"]


def test_settings_that_are_not_json_are_one_line(capsys, tmp_path):
    lines = run(capsys, print, "--cfg", "{a", "--rows", str(tmp_path / "r"))
    assert len(lines) == 1 and "--cfg is not JSON" in lines[0]


def test_a_torn_input_is_named(capsys, tmp_path):
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1")
    flags = ("--cfg", "{}", "--rows", str(tmp_path / "r"), "--inputs", f"states={torn}")
    lines = run(capsys, lambda job: tables.read(job.inputs["states"]), *flags, inputs={"states": ""})
    assert len(lines) == 1 and str(torn) in lines[0]


def test_a_full_disk_is_one_line_and_leaves_no_part(capsys, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    lines = run(capsys, lambda job: job.write("mixtures", [ROW]), "--cfg", "{}", "--rows", str(tmp_path / "rows.parquet"))
    assert len(lines) == 1 and "disk is full" in lines[0] and str(tmp_path) in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_programming_error_keeps_its_traceback(tmp_path):
    with pytest.raises(ZeroDivisionError):
        stage.run("mixtures", "", lambda job: 1 / 0, ("rows",), {}, ["--cfg", "{}", "--rows", str(tmp_path / "r")])


def ledger(tmp_path, code="code", inputs="in"):
    return Ledger(tmp_path / "model=s4d", "mixtures", code, inputs)


def test_a_finished_run_is_kept_and_another_identity_repeats_it(tmp_path):
    done = []

    def work(checkpoint):
        done.append(checkpoint)
        return [ROW], "numpy"

    keys, cfg = {"eta": 0.0}, {"eta": 0, "epochs": 3}
    assert ledger(tmp_path).run(keys, cfg, work)
    assert not ledger(tmp_path).run(keys, cfg, work)
    assert ledger(tmp_path).run(keys, cfg | {"epochs": 4}, work)
    assert ledger(tmp_path, code="other").run(keys, cfg, work)
    assert ledger(tmp_path, inputs="other").run(keys, cfg, work)
    assert len(done) == 4 and len(set(done)) == 4, "each identity has a checkpoint of its own"


def test_a_run_tells_how_many_sequences_a_second_it_trained_on_and_how_busy_its_core_was(tmp_path):
    def train(checkpoint):
        for _ in range(3):
            METER.epoch(sequences=200, seconds=0.5, device="cpu")
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        return [ROW], "torch"

    def wait(checkpoint):
        time.sleep(0.2)
        return [ROW], "numpy"

    trains, waits = ledger(tmp_path / "a"), ledger(tmp_path / "b")
    trains.run({}, {}, train), waits.run({}, {}, wait)
    (busy,), (idle,) = trains.sidecar, waits.sidecar
    assert (busy["sequences_per_s"], idle["sequences_per_s"]) == (400, None)
    assert 0.05 < busy["utilisation"] <= 1.5 and idle["utilisation"] < 0.5


def test_a_run_without_its_companion_file_is_repeated(tmp_path):
    found = Ledger(tmp_path, "mixtures", "code", beside=("weights.pt",))

    def work(checkpoint):
        (checkpoint.parent / "weights.pt").write_bytes(b"w")
        return [ROW], "numpy"

    assert found.run({"seed": 0}, {}, work)
    assert not found.run({"seed": 0}, {}, work)
    (tmp_path / "seed=0" / "weights.pt").unlink()
    assert found.run({"seed": 0}, {}, work)


def test_a_finished_run_leaves_no_checkpoint_and_one_line_of_provenance(tmp_path):
    found = ledger(tmp_path)

    def work(checkpoint):
        checkpoint.write_bytes(b"state")
        return [ROW], "numpy"

    found.run({"eta": 0.25}, {"eta": 0.25}, work)
    place = tmp_path / "model=s4d" / "eta=0.25"
    assert sorted(path.name for path in place.iterdir()) == ["run.parquet", "times.parquet"]
    line = found.sidecar[0]
    assert line["run"] == "eta=0.25" and line["seconds"] >= 0 and json.loads(line["cfg"]) == {"eta": 0.25}
    assert {"python", "torch", "numpy"} <= set(json.loads(line["versions"]))


def test_numbers_in_folders_have_one_spelling(tmp_path):
    assert (
        folder(tmp_path, {"eta": 0.0, "seed": 1}) == folder(tmp_path, {"eta": 0, "seed": 1.0}) == tmp_path / "eta=0" / "seed=1"
    )


def test_the_digest_of_inputs_follows_their_bytes(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a"), two.write_bytes(b"a")
    assert digest([one]) == digest([two]) != digest([one, two])
    two.write_bytes(b"b")
    assert digest([one]) != digest([two])


def test_progress_off_a_terminal_is_a_line_now_and_then_with_an_estimate(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(stage.time, "monotonic", lambda: clock[0])
    progress = stage.Progress("forecast", 10, "epochs", every=15.0)
    progress.step(5, worked=False)
    for _ in range(5):
        clock[0] += 10.0
        progress.step()
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0] == "forecast: 7 of 10 epochs, about 30 s left", "kept runs do not count as work"
    assert lines[-1] == "forecast: 10 of 10 epochs, 50 s" and len(lines) == 3


HOLDER = "import sys, time\nfrom continuity import locks\nprint(locks.hold(sys.argv[1], sys.argv[2] == 'shared'), flush=True)\ntime.sleep(60)"


def holder(path, kind):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path, kind], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "True"
    return process


def test_a_lock_falls_with_its_process_however_it_ends(tmp_path):
    path = tmp_path / "study" / ".lock"
    process = holder(path, "alone")
    assert not locks.hold(path) and not locks.free(path)
    process.kill()
    process.wait()
    assert locks.free(path) and locks.hold(path)


def test_jobs_share_their_lock_and_a_new_run_sees_them(tmp_path):
    path = tmp_path / ".jobs"
    one, two = holder(path, "shared"), holder(path, "shared")
    assert not locks.free(path)
    for process in (one, two):
        process.kill()
        process.wait()
    assert locks.free(path)


def test_no_result_path_is_spelled_in_a_rule():
    for path in (ROOT / "rules").glob("*.smk"):
        assert not re.search(r"results/|tables/|\.parquet(?!\")", path.read_text().replace('"runs.parquet"', "")), path


def test_a_gpus_determinism_setting_stands_beside_its_runs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H200")
    assert machine("cuda")["device"] == "cuda: H200, not deterministic"
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert machine("cuda")["device"] == "cuda: H200, deterministic"
