"""A study that was moved, copied, half copied, or lies apart from its project; and a disk without room."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from continuity import config, marks, tables
from project import Project

FOREIGN = ("unshare", "--mount", "--uts") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount", "--uts")
"""A shell that may mount, and rename its machine, for itself alone."""
READ_ONLY = 'mount --bind . .; mount -o remount,bind,ro .; cd "$PWD"'
RUN = '"$PYTHON" scripts/study.py --config config/tiny.yaml --cores 1 --'


def copied(study, folder: Path, results: str = "results") -> Project:
    """Project and results in another folder, without what Snakemake remembers; the results at `results`."""
    folder.mkdir(exist_ok=True)
    project = Project(folder)
    tiny = config.read(study.folder / "config/tiny.yaml") | {"results": results}
    (folder / "config/tiny.yaml").write_text(yaml.safe_dump(tiny))
    target = folder / results
    shutil.copytree(study.folder / "results", target, ignore=shutil.ignore_patterns("logs"))
    return project


def foreign(project: Project, script: str) -> subprocess.CompletedProcess:
    """Run a shell script in the project's folder, apart from the machine's other mounts and its name."""
    command = [*FOREIGN, "sh", "-ec", script]
    environment = os.environ | {"PYTHON": sys.executable, "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", "/tmp")}
    return subprocess.run(command, cwd=project.folder, env=environment, capture_output=True, text=True)


# ---------------------------------------------------------------- moved and copied


@pytest.mark.parametrize("results", ["results", "deeper/my results", "absolute"])
def test_a_copied_study_reruns_nothing_and_an_edit_its_part(study, tmp_path, results):
    """Another relative path, a space in it, an absolute one."""
    results = str(tmp_path / "apart from it") if results == "absolute" else results
    project = copied(study, tmp_path / "a copy", results)
    assert project.planned() == set()
    with project.edit("config/tiny.yaml", "permutations: 100", "permutations: 200"):
        found = project.planned()
    assert found == {"alignment", "prediction", "claims", "figures", "catalog", "provenance", "report", "all"}


def test_a_copy_that_lost_its_times_trains_nothing_again(study, tmp_path):
    """`cp -r` gives every file the time of the copy: jobs look again, and find their runs finished."""
    project = copied(study, tmp_path)
    root = project.folder / "results/tiny"
    for path in sorted(root.glob("**/*"), reverse=True):
        os.utime(path)
    runs = root / "tables/forecast/model=s4d/system=vdp"
    before = {path: path.read_bytes() for path in runs.glob("**/times.parquet")}
    done = project.study("results/tiny/tables/forecast/model=s4d/system=vdp/rows.parquet")
    assert done.returncode == 0, done.stderr
    assert before and {path: path.read_bytes() for path in before} == before


def test_a_study_goes_on_from_another_machine(study, tmp_path):
    """A job that died on a machine of another name stands in nobody's way."""
    project = copied(study, tmp_path)
    root = project.folder / "results/tiny"
    mark = marks.path(root, "tables/gap.parquet")
    mark.write_text('{"state": "running", "host": "node17", "pid": 1, "started": 0}\n')
    (root / "tables/gap.parquet").unlink()
    done = foreign(project, f"hostname elsewhere; {RUN} gap")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "tables/gap.parquet").read_bytes() == (study.folder / "results/tiny/tables/gap.parquet").read_bytes()
    assert marks.read(root, "tables/gap.parquet")["host"] == "elsewhere"


# ---------------------------------------------------------------- a project that cannot be written


def test_a_project_that_is_read_only_works_in_a_folder_of_the_users_own(tmp_path):
    """`--directory` names it: results and Snakemake's own files lie there."""
    (tmp_path / "the project").mkdir()
    project, own = Project(tmp_path / "the project"), tmp_path / "my own"
    target = "results/tiny/data/systems/ou.parquet"
    done = foreign(project, f"{READ_ONLY}; {RUN} {target} --directory {shlex.quote(str(own))}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (own / target).exists() and (own / ".snakemake").exists()
    assert not (project.folder / "results").exists()


def test_a_read_only_project_without_a_folder_says_what_to_do(tmp_path):
    done = foreign(Project(tmp_path), f"{READ_ONLY}; {RUN} dissipation")
    lines = [line for line in done.stderr.splitlines() if "read-only" in line]
    assert done.returncode == 2 and len(lines) == 1 and "--directory" in lines[0], done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- half copied


def test_a_table_that_was_not_copied_is_made_again_from_its_runs(study, tmp_path):
    project = copied(study, tmp_path)
    (project.folder / "results/tiny/tables/benchmark.parquet").unlink()
    assert {job for job in project.planned() if ":" in job} == set(), "no run is made again"
    done = subprocess.run([sys.executable, "-m", "continuity.cli", "query", "SELECT * FROM benchmark", "--study", "tiny"],
                          cwd=project.folder, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 2 and "benchmark is not in this study" in done.stderr


@pytest.mark.parametrize(
    "name, again",
    [
        ("tables/score.parquet", "score"),
        ("tables/forecast/model=s6/system=ou/rows.parquet", "forecast_run:s6,ou"),
        ("data/systems/ou.parquet", "systems_simulate:ou"),
    ],
)
def test_a_truncated_file_is_found_and_made_again(study, tmp_path, name, again):
    project = copied(study, tmp_path)
    path = project.folder / "results/tiny" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert again in project.planned()


def test_a_truncated_table_is_named_by_the_query_with_what_to_do(study, tmp_path):
    project = copied(study, tmp_path)
    path = project.folder / "results/tiny/tables/score.parquet"
    path.write_bytes(path.read_bytes()[:100])
    done = subprocess.run([sys.executable, "-m", "continuity.cli", "query", "SELECT * FROM score", "--study", "tiny"],
                          cwd=project.folder, capture_output=True, text=True)  # fmt: skip
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1
    assert "score.parquet" in lines[0] and "delete it and run the study again" in lines[0]


def test_half_a_file_beside_a_run_is_named_with_what_to_do(study, tmp_path):
    """A second output of a job says nothing of its own identity: whoever reads it says that it is torn."""
    project = copied(study, tmp_path)
    root = project.folder / "results/tiny"
    weights = root / "data/encoders/task=listops/model=s4d.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    target = root / "data/latents/task=listops/encoder=s4d.parquet"
    target.unlink()
    done = project.study(str(target.relative_to(project.folder)))
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in said
    assert f"{weights.relative_to(project.folder)}: unreadable" in said and "delete it and run the study again" in said


# ---------------------------------------------------------------- no room


def test_a_full_disk_is_one_line_and_the_study_goes_on_when_there_is_room(study, tmp_path):
    project = Project(tmp_path)
    (tmp_path / "results").mkdir()
    shutil.copy(study.folder / "config/tiny.yaml", tmp_path / "config/tiny.yaml")
    run = f"{RUN} results/tiny/data/systems/vdp.parquet"
    script = (
        f"mount -t tmpfs -o size=500k tmpfs results; {run} >first.txt 2>&1 && exit 7; find results -name '*.part*' >left.txt; "
        f"mount -o remount,size=50m results; {run} >second.txt 2>&1; ls -l results/tiny/data/systems >made.txt"
    )
    done = foreign(project, script)
    first = (tmp_path / "first.txt").read_text()
    assert done.returncode == 0, done.stderr + first + (tmp_path / "second.txt").read_text()
    told = [line for line in first.splitlines() if "the disk is full; free space and run again" in line]
    assert told and "Traceback" not in first
    assert not (tmp_path / "left.txt").read_text(), "no half file is left"
    assert "vdp.parquet" in (tmp_path / "made.txt").read_text()


def test_a_file_that_may_not_grow_is_one_line(tmp_path):
    """A limit on the size of files, as some clusters set: the old file stays."""
    path = tmp_path / "mixtures.parquet"
    tables.write("mixtures", [{"system": "vdp", "eta": 0.0, "construction": "balanced", "mu": 0.5}], path)
    before = path.read_bytes()
    code = (
        "import resource\nfrom continuity import stage\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "rows = [{'system': 'vdp', 'eta': 0.0, 'construction': 'balanced', 'mu': 0.25}]\n"
        f"stage.run('mixtures', '', lambda job: job.write('mixtures', rows), argv=['--cfg', '{{}}', '--rows', {str(path)!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and "may not grow" in lines[0] and str(path.parent) in lines[0]
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == [path.name]
