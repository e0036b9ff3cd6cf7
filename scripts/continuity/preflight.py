"""Before a study starts: a rehearsal of its networks and of the user's tasks, once for each state of both.

Light: torch is paid for by a process of its own, and only where something has changed since the last start.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from continuity import config as configuration
from continuity import marks, tables
from continuity.identity import PACKAGE, canonical, code_hash, key, module_file
from continuity.study import RULES, Study

FILE = "rehearsal.json"
TASK_LENGTH, TASK_CLASSES = 64, 10
"""Length and classes of the batch for networks of labelled tasks, whose files do not exist yet."""


def script(study: Study, own: bool = False) -> dict:
    """What the rehearsal plays: {networks, tasks, seed}; own: only what the user made."""
    networks = {}
    for stage, ends in _stages(study).items():
        part = study.config[stage]
        for name in part["models"]:
            entry = {"model": study.model(name), "network": part["network"]} | ends
            if "factory" in entry["model"] or not own:
                networks.setdefault(canonical(entry), entry | {"where": stage})
    theirs = [task for task in study.config["tasks"]["list"] if "path" in task and _is_users(task)]
    cut = RULES["tasks_make"].slice
    played = [cut(study, {"task": task["name"]}) | {"stride": _stride(study, task["name"])} for task in theirs]
    return {"networks": list(networks.values()), "tasks": played}


def _stages(study: Study) -> dict[str, dict]:
    part = study.config
    labelled = {"d_input": 1, "d_output": TASK_CLASSES, "length": TASK_LENGTH}
    return {
        "forecast": {"d_input": 16, "d_output": 16, "length": part["forecast"]["context"]},
        "benchmark": labelled,
        "refinement": {"d_input": 1, "d_output": 1, "length": part["refinement"]["length"]},
        "curriculum": labelled,
    }


def _is_users(task: dict) -> bool:
    return configuration.kind_of(task) not in configuration.known_tasks()


def _stride(study: Study, task: str) -> int:
    """The coarsest stride at which a plan of the curriculum reads `task`."""
    part, strides = study.config["curriculum"], [1]
    if task in configuration.curriculum_tasks(study.config):
        for plan in part["plans"]:
            if task in plan.get("tasks", [task]):
                strides += plan.get("strides", [])
    return max(strides)


def _identity(study: Study, play: dict) -> str:
    """Changes with what is played, its code, and the user's files."""
    models = [entry["model"] for entry in play["networks"]]
    layers = {configuration.known_layers()[model["layer"]].split(":")[0] for model in models if "layer" in model}
    sources = {module_file(name) for name in layers}
    sources |= {study.user_file(model["factory"]) for model in models if "factory" in model}
    states = [[task["task"]["path"], *_state(Path(task["task"]["path"]))] for task in play["tasks"]]
    return key(canonical({"play": play, "files": states}), code_hash((PACKAGE / "rehearsal.py", *sorted(sources))))


def _state(path: Path) -> tuple[str, int]:
    """Latest change and size of a file, or of all files of a folder."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    found = [file.stat() for file in files]
    return str(max((stat.st_mtime_ns for stat in found), default=0)), sum(stat.st_size for stat in found)


def check(study: Study, looks: bool = False) -> None:
    """Raise ConfigError, one line a problem, where a network or a user's task of the study cannot run.

    A rehearsal without problems is remembered in the study's folder, so that the next start pays nothing for it.
    looks: nothing is to run; then only what the user made is played, and nothing is written.
    """
    play = script(study, own=looks)
    if not play["networks"] and not play["tasks"]:
        return
    place, now = study.root / marks.FOLDER / FILE, _identity(study, play)
    with suppress(OSError, ValueError):
        if json.loads(place.read_text(encoding="utf-8")).get("key") == now:
            return
    problems = _ask(play)
    if problems:
        raise configuration.ConfigError(problems)
    if not looks:
        with suppress(OSError), tables.atomic(place) as temporary:
            temporary.write_text(json.dumps({"key": now}) + "\n", encoding="utf-8")


def _ask(play: dict) -> list[str]:
    command = [sys.executable, "-m", "continuity.rehearsal"]
    paths = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, input=json.dumps(play), capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return [f"the rehearsal of the networks ended early: {said[-1]}"]
