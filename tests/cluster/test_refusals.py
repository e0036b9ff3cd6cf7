"""What a user sees when a cluster does not take the study, and what becomes of jobs that an earlier run left in its queue."""

import os
import signal
import sys
from pathlib import Path

from waiting import wait_for

TASK = "results/tiny/data/tasks/listops.parquet"


SLURM = {"sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct", "sacctmgr", "srun", "sshare"}
REFUSED = {
    "tasks_make:slurm_account=nobody": "Invalid account",
    "systems_simulate:slurm_partition=nowhere": "Invalid partition",
    "refinement_run:gpu=9": "Requested node configuration is not available",
    "dissipation_run:runtime=6000": "the partition allows 60 minutes",
}


def test_what_slurm_refuses_is_a_line_each_before_anything_runs(home):
    resources = list(REFUSED)
    run = home.start("tasks", "systems", "refinement", "dissipation", "--set-resources", *resources)
    assert run.wait(180) == 2 and "Traceback" not in home.said(), home.said()
    lines = [line for line in home.said().splitlines() if line.startswith("Slurm refuses jobs that ask for ")]
    assert len(lines) == len(REFUSED), home.said()
    for reason in REFUSED.values():
        assert any(reason in line for line in lines)
    assert not (home.folder / "results/tiny/logs").exists()


def test_without_slurm_on_the_path_is_one_line(home, tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name not in SLURM:
            (commands / path.name).symlink_to(path)
    run = home.start("tasks", PATH=f"{Path(sys.executable).parent}:{commands}")
    assert run.wait(180) == 2 and "Traceback" not in home.said(), home.said()
    assert "no sbatch, squeue, scancel on the PATH" in home.said()


def test_a_lost_controller_is_one_line_at_the_start(home, cluster):
    cluster.down("slurmctld")
    try:
        done = home.start("tasks")
        assert done.wait(180) == 2, home.said()
    finally:
        cluster.up("slurmctld")
    assert "start again once Slurm answers" in home.said() and "Traceback" not in home.said()


def test_jobs_that_a_killed_run_left_in_the_queue_are_cancelled_and_named(home, cluster):
    cluster.ask("scontrol", "update", "PartitionName=cpu", "State=DOWN")
    try:
        first = home.start("tasks")
        left = wait_for(lambda: cluster.jobs("PENDING"), "a job in the queue")
        os.kill(main_process(first), signal.SIGKILL)
        first.wait()
        assert cluster.jobs("PENDING") == left
        second = home.start("tasks", log="second.txt")
        wait_for(lambda: not set(left) & set(cluster.jobs("PENDING")), "the end of the job that was left")
    finally:
        cluster.ask("scontrol", "update", "PartitionName=cpu", "State=UP")
    assert second.wait() == 0, home.said("second.txt")
    for job, rule in left.items():
        assert f"cancelling jobs of an earlier run that wait in the queue: {job} ({rule})" in home.said("second.txt")
    assert (home.folder / TASK).exists()


def main_process(started) -> int:
    """The process of Snakemake below `timeout`."""
    with open(f"/proc/{started.pid}/task/{started.pid}/children") as children:
        return int(children.read().split()[0])
