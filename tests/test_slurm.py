"""Clusters without a cluster: the queue as fake commands show it, two copies of one job, and what the rules ask for.

tests/cluster runs studies on a real Slurm.
"""

import re
import subprocess
import sys
import textwrap

import pytest
import torch
import yaml
from continuity import config, slurm, tables, training
from continuity.problems import Problem
from continuity.study import RULES, Study
from project import ROOT


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A folder of fake commands that is the whole PATH: add(name, shell line) makes one that also notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)

    def add(name, line):
        (folder / name).write_text(f"#!/bin/sh\necho {name} \"$@\" >>'{tmp_path}/calls'\n{line}\n")
        (folder / name).chmod(0o755)

    add.calls = lambda: (tmp_path / "calls").read_text().splitlines()
    return add


def queued(*lines):
    return "/bin/cat <<END\n" + "\n".join(lines) + "\nEND"


def test_waiting_jobs_of_this_study_and_folder_are_cancelled_and_no_others(commands, tmp_path, capsys):
    mine, queue = f"continuity-paper_1f-2e|rule_score_run|{tmp_path}", tmp_path / "queue"
    others = [
        f"5|PD|continuity-desk_1f-2e|rule_score_run|{tmp_path}",
        f"6|PD|continuity-paper-2_1f-2e|rule_score_run|{tmp_path}",
        "7|PD|continuity-paper_1f-2e|rule_score_run|/elsewhere",
        f"8|R|an editor|(null)|{tmp_path}",
    ]
    queue.write_text("\n".join([f"3|PD|{mine}", f"4_[2-9]|PD|{mine}", *others]) + "\n")
    rest = "\n".join(others)
    commands("squeue", f"/bin/cat '{queue}'")
    commands("scancel", f"/bin/cat >'{queue}' <<END\n{rest}\nEND")
    slurm.settle("paper", needed=True, pause=0.01)
    assert [call for call in commands.calls() if call.startswith("scancel")] == ["scancel 3 4_[2-9]"]
    said = capsys.readouterr().err.splitlines()
    assert said == ["cancelling jobs of an earlier run that wait in the queue: 3 (rule_score_run), 4_[2-9] (rule_score_run)"]


def test_a_running_job_of_an_earlier_run_is_waited_for(commands, tmp_path, capsys):
    left = tmp_path / "left"
    left.write_text("xx")
    line = f"9|R|continuity-paper_1f|rule_forecast_run|{tmp_path}"
    commands(
        "squeue", f"if [ -s '{left}' ]; then echo '{line}'; fi\n/usr/bin/truncate -s -1 '{left}' 2>/dev/null || :>'{left}'"
    )
    slurm.settle("paper", needed=True, pause=0.01)
    said = capsys.readouterr().err
    assert "waiting for jobs of an earlier run that still run: 9 (rule_forecast_run)" in said and "`scancel 9`" in said
    assert len(commands.calls()) > 2 and not any(call.startswith("scancel") for call in commands.calls())


def test_a_queue_that_does_not_answer_stops_a_study_that_needs_it(commands):
    commands("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(Problem, match="Unable to contact slurm controller; .*start again once Slurm answers"):
        slurm.settle("paper", needed=True)
    slurm.settle("paper", needed=False)


def test_without_slurm_there_is_nothing_to_settle_and_a_clear_word_where_it_is_wanted(commands):
    slurm.settle("paper", needed=False)
    with pytest.raises(Problem, match="no sbatch, squeue, scancel on the PATH; start the study on a login node"):
        slurm.present()


def test_jobs_are_tried_once_for_each_account_partition_and_gpu_at_their_largest(commands):
    commands("sinfo", queued("cpu*|1-00:00:00", "gpu|2:00:00"))
    commands("sbatch", 'case "$*" in *=nobody*) echo "sbatch: error: Invalid account" >&2; exit 1;; esac')
    small = {"mem_mb": 500, "runtime": 10}
    jobs = [small, small | {"runtime": 1440}, small | {"mem_mb": 900}, small | {"slurm_partition": "gpu", "gpu": 1}]
    slurm.check(jobs)
    asked = [call for call in commands.calls() if call.startswith("sbatch")]
    assert asked == [
        "sbatch --test-only --mem=900 --time=1440 --wrap=true",
        "sbatch --test-only --partition=gpu --gpus=1 --mem=500 --time=10 --wrap=true",
    ]
    with pytest.raises(Problem) as refused:
        slurm.check([small | {"slurm_account": "nobody"}, small | {"slurm_partition": "gpu", "runtime": 121}])
    account, limit = refused.value.problems
    assert (
        account.startswith("Slurm refuses jobs that ask for --account=nobody")
        and ": Invalid account; config/README.md" in account
    )
    assert limit.endswith("the partition allows 120 minutes; set resources.minutes to at most that")


@pytest.mark.parametrize(
    "limit, expected",
    [("30:00", 30), ("1:00:00", 60), ("2-01:00:00", 2940), ("infinite", float("inf")), ("n/a", float("inf"))],
)
def test_time_limits_are_read_as_slurm_writes_them(limit, expected):
    assert slurm.minutes(limit) == expected


def test_the_name_of_a_study_is_a_name_that_slurm_takes():
    assert re.fullmatch("[A-Za-z0-9_-]{1,50}", slurm.label("my study/" + "x" * 80))


# ---------------------------------------------------------------- one GPU


@pytest.mark.parametrize("setting", ["auto", "cuda"])
def test_a_job_that_was_given_two_gpus_says_so(monkeypatch, setting):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(Problem, match="the scheduler gave this job 2 GPUs and it uses one"):
        training.device_of(setting)
    assert training.device_of("cpu") == "cpu"


def test_a_workstation_with_two_gpus_is_no_mistake(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert training.device_of("auto") == "cuda"


def test_a_job_with_one_gpu_uses_it(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert training.device_of("cuda") == "cuda"


def test_only_jobs_that_train_on_a_gpu_ask_for_one():
    study = Study(config.load(ROOT / "config/paper.yaml"))
    asked = {rule: {study.gpus(rule, job.wildcards) for job in study.jobs(rule)} for rule in RULES}
    assert {rule for rule, gpus in asked.items() if 1 in gpus} == {rule for rule in RULES if asks_for_gpu(rule)}
    assert study.gpus("forecast_run", {"system": "ou", "model": "persistence"}) == 0
    cpu = Study(config.load(ROOT / "config/paper.yaml") | {"resources": study.config["resources"] | {"device": "cpu"}})
    assert not any(cpu.gpus(rule, job.wildcards) for rule in RULES for job in cpu.jobs(rule))


def asks_for_gpu(rule):
    return any(f'gpu=gpus("{rule}")' in path.read_text() for path in (ROOT / "rules").glob("*.smk"))


# ---------------------------------------------------------------- the profile


def test_rules_that_join_tables_run_where_snakemake_does():
    text = (ROOT / "rules/common.smk").read_text()
    local = set(re.findall(r"^    (\w+),$", text.partition("\nlocalrules:")[2].partition("\n\n")[0], flags=re.M))
    named = {
        name for path in (ROOT / "rules").glob("*.smk") for name in re.findall(r"^rule (\w+):", path.read_text(), flags=re.M)
    }
    working = {name for name in named if name.rpartition("_")[2] in ("run", "make", "encode", "simulate")}
    assert local == named - working | {"all"}


def test_both_profiles_judge_reruns_alike():
    local, cluster = (yaml.safe_load((ROOT / f"config/profiles/{name}/config.yaml").read_text()) for name in ("local", "slurm"))
    for key in ("rerun-incomplete", "rerun-triggers", "max-checksum-file-size"):
        assert local[key] == cluster[key]


def test_a_cluster_would_rerun_nothing_of_a_study_made_here(study):
    assert study.planned("--profile", "config/profiles/slurm") == set()
    done = study.study("-n", "--profile", "config/profiles/slurm")
    assert "Nothing to be done" in done.stdout + done.stderr


# ---------------------------------------------------------------- two copies of one job

COPY = textwrap.dedent(
    """
    import os, sys, time
    from continuity import stage

    ROW = {"system": "vdp", "construction": "balanced", "mu": 0.5}

    def work(job):
        def one(keys, checkpoint, tell):
            with open(sys.argv[2], "a") as trace:
                trace.write(f"{os.getpid()} {keys['eta']}\\n")
            time.sleep(0.3)
            return [ROW | keys], "numpy"

        job.runs("mixtures", [({"eta": eta}, {"eta": eta}) for eta in (0.0, 0.25, 0.5, 1.0)], one)

    folder = sys.argv[1] + "/tables/mixtures/system=vdp/"
    stage.run("mixtures", "", work, ("rows", "runs"), argv=["--cfg", "{}", "--rows", folder + "rows.parquet", "--runs", folder + "runs.parquet"])
    """
)


def copies(root, count):
    """What `count` copies of one job, started at once, say: (its trace, their errors, the bytes of its rows)."""
    root.mkdir()
    (root / ".lock").touch()
    trace = root / "trace"
    started = [
        subprocess.Popen([sys.executable, "-c", COPY, root, trace], stderr=subprocess.PIPE, text=True) for _ in range(count)
    ]
    errors = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * count, errors
    return trace.read_text().splitlines(), errors, (root / "tables/mixtures/system=vdp/rows.parquet").read_bytes()


def test_a_second_copy_of_a_job_waits_for_the_first_and_repeats_nothing(tmp_path):
    trace, errors, rows = copies(tmp_path / "twice", 2)
    worker, etas = {line.split()[0] for line in trace}, [line.split()[1] for line in trace]
    assert etas == ["0.0", "0.25", "0.5", "1.0"] and len(worker) == 1
    (waited,) = [line for error in errors for line in error.splitlines() if "another copy" in line]
    assert waited.startswith("tables/mixtures/system=vdp/rows.parquet") and f"process {worker.pop()}; waiting" in waited
    assert rows == copies(tmp_path / "once", 1)[2]
    assert tables.read(tmp_path / "twice/tables/mixtures/system=vdp/rows.parquet").num_rows == 4
