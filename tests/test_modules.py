"""Editing any one module of the library reruns exactly the jobs that load it.

What a job loads is found twice: by `continuity.identity`, which reads syntax trees, and here by Python's own modulefinder,
which reads bytecode, with the layer, host or task of the job asked of the registries themselves.
"""

import inspect
import json
import os
import subprocess
import sys
from modulefinder import ModuleFinder
from pathlib import Path

import pytest
from continuity import config
from continuity.hosts import HOSTS
from continuity.layers import LAYERS
from continuity.study import RULES, Study
from continuity.tasks import TASKS
from project import ROOT, Project

SCRIPTS = ROOT / "scripts"
MODULES = sorted(path.relative_to(SCRIPTS).as_posix() for path in (SCRIPTS / "continuity").glob("**/*.py"))
EDIT_EACH = """
import json, sys
from pathlib import Path
from continuity import config, identity
from continuity.study import RULES, Study

assert identity.PACKAGE == Path("scripts/continuity").resolve()

def by_content(function):
    \"\"\"A cache that sees an edit: one value for a file as long as it has the same time and size.\"\"\"
    known = {}
    def remembered(path):
        about = path.stat()
        key = (path, about.st_mtime_ns, about.st_size)
        if key not in known:
            known[key] = function(path)
        return known[key]
    return remembered

identity._parsed = by_content(identity._parsed.__wrapped__)
identity.tree_hash = by_content(identity.tree_hash.__wrapped__)
study = Study(config.load("config/tiny.yaml"))
jobs = [job for rule in RULES for job in study.jobs(rule)]

def codes():
    identity.code_hash.cache_clear()
    return [study.code(job.rule, job.wildcards) for job in jobs]

before, changed = codes(), {}
for name in json.load(sys.stdin):
    path = Path("scripts") / name
    text = path.read_text()
    path.write_text(text + "\\nEDITED = 1\\n")
    changed[name] = [job.output for job, old, new in zip(jobs, before, codes(), strict=True) if old != new]
    path.write_text(text)
assert codes() == before
print(json.dumps(changed))
"""


@pytest.fixture(scope="module")
def reruns(tmp_path_factory):
    """By module, the first outputs of the jobs that its edit reruns, as the study says: in a copy, one process for all."""
    project = Project(tmp_path_factory.mktemp("copy"))
    environment = os.environ | {"PYTHONPATH": str(project.folder / "scripts"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", EDIT_EACH], cwd=project.folder, env=environment, input=json.dumps(MODULES),
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def loaded(path: Path) -> set[str]:
    """The library's modules that Python loads for a file, the file itself included where it is one of them."""
    finder = ModuleFinder(path=[str(SCRIPTS)])
    finder.run_script(str(path))
    found = {Path(module.__file__).resolve() for module in finder.modules.values() if module.__file__} | {path.resolve()}
    inside = {file for file in found if file.is_relative_to(SCRIPTS / "continuity")}
    # A module brings the packages that it lies in.
    inside |= {
        parent / "__init__.py" for file in inside for parent in file.parents if parent.is_relative_to(SCRIPTS / "continuity")
    }
    return {file.relative_to(SCRIPTS).as_posix() for file in inside if file.exists()}


def chosen(study: Study, rule: str, keys: dict) -> list[Path]:
    """The files of the layer, host or task that a job is about, asked of the registries."""
    models = {model["name"]: model["layer"] for model in study.config["models"] if "layer" in model}
    if rule == "tasks_make":
        task = next(task for task in study.config["tasks"]["list"] if task["name"] == keys["task"])
        return [Path(inspect.getfile(TASKS[task.get("kind", task["name"])]))]
    if rule == "stability_run":
        host = next(host for host in study.config["stability"]["hosts"] if host["name"] == keys["host"])
        layer = host.get("options", {}).get("layer", "mamba")
        return [Path(inspect.getfile(HOSTS[host["host"]])), Path(inspect.getfile(LAYERS[layer]))]
    name = keys.get("model", keys.get("encoder", "").split("@")[0])
    trained = rule in (
        "benchmark_run",
        "latents_encode",
        "forecast_run",
        "forecast_search_run",
        "crossed_run",
        "refinement_run",
        "curriculum_run",
    )
    return [Path(inspect.getfile(LAYERS[models[name]]))] if trained and name in models else []


@pytest.fixture(scope="module")
def expected():
    """By module, the first outputs of the jobs that load it, by Python's own means."""
    study, known = Study(config.load(ROOT / "config/tiny.yaml")), {}
    found = {name: [] for name in MODULES}
    for rule in RULES:
        for job in study.jobs(rule):
            for path in (SCRIPTS / RULES[rule].script, *chosen(study, rule, job.wildcards)):
                known.setdefault(path, loaded(path))
            files = (SCRIPTS / RULES[rule].script, *chosen(study, rule, job.wildcards))
            for name in set().union(*(known[path] for path in files)):
                found[name].append(job.output)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_editing_a_module_reruns_exactly_the_jobs_that_load_it(module, reruns, expected):
    assert reruns[module] == expected[module]


def test_the_modules_that_train_are_among_those_that_rerun_something(expected):
    """The expectation is no empty one."""
    assert len(expected["continuity/tables.py"]) == len({output for outputs in expected.values() for output in outputs})
    assert {output.split("/")[1] for output in expected["continuity/training.py"]} >= {"forecast", "benchmark", "curriculum"}
    assert all("s6" in output or "stability" in output for output in expected["continuity/layers/s6.py"])
    assert not expected["continuity/cli.py"] and not expected["continuity/status.py"]
