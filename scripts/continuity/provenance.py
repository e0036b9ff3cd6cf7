"""What made each file of a study, as JSON-LD: a Process Run Crate 0.5 (https://w3id.org/ro/wfrun/process/0.5) without times.

One action a job: its script is the instrument, what it read and its settings and code are the objects, what it wrote the
result. Settings and code come from the files themselves. Times, devices and hosts are in the table `runs`, a line a run.
"""

import subprocess
from pathlib import Path

from continuity.graph import needs
from continuity.identity import ROOT, canonical, closure, pins, versions
from continuity.study import RULES, SCRIPTS, Job, Study, stamp

CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"


def crate(study: Study) -> dict:
    """The crate of a study: every file that exists and names its settings and code, and the job that made it."""
    made = [job for rule in RULES if rule not in ("report", "catalog", "provenance") for job in study.jobs(rule)]
    stamps = {job.output: found for job in made if all(found := stamp(Path(study.path(job.output))))}
    actions = [part for job in made if job.output in stamps for part in _action(study, job, stamps)]
    scripts = sorted({job.rule for job in made if job.output in stamps})
    software = _software({name: version for rule in scripts for name, version in _versions(rule).items()})
    files = [{"@id": output, "@type": "File", "name": output} for output in stamps]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": {"@id": PROFILE},
        "name": f"Study {study.config['study']}",
        "description": "Tables of a study of continuity in sequence models, and the jobs that made them",
        "license": {"@id": "https://spdx.org/licenses/MIT"},
        "hasPart": [{"@id": file["@id"]} for file in files],
        "mentions": [{"@id": part["@id"]} for part in actions if part["@type"] == "CreateAction"],
        "about": {"@id": "#settings"},
    }
    settings = _value("#settings", "settings", canonical(study.settings))
    return {"@context": CONTEXT, "@graph": [*_heads(), root, settings, *_scripts(scripts), *software, *files, *actions]}


def _heads() -> list[dict]:
    """The crate's own description, and the profile and workflow system it names."""
    about = {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"}}
    about["conformsTo"] = {"@id": "https://w3id.org/ro/crate/1.1"}
    profile = {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    licence = {"@id": "https://spdx.org/licenses/MIT", "@type": "CreativeWork", "name": "MIT"}
    return [about, profile, licence]


def _value(identifier: str, name: str, value: str) -> dict:
    return {"@id": identifier, "@type": "PropertyValue", "name": name, "value": value}


def _action(study: Study, job: Job, stamps: dict) -> list[dict]:
    """The job that made one file, and its settings and code."""
    cfg, code = stamps[job.output]
    read = [output for _, output in needs(study, job) if output in stamps]
    name = " ".join([job.rule, *job.wildcards.values()])
    objects = [f"#cfg {job.output}", f"#code {job.output}"]
    action = {
        "@id": f"#{job.rule} {job.output}",
        "@type": "CreateAction",
        "name": name,
        "instrument": {"@id": _script(job.rule)},
        "object": [{"@id": identifier} for identifier in (*read, *objects)],
        "result": [{"@id": job.output}],
    }
    return [action, _value(objects[0], "cfg", cfg), _value(objects[1], "code", code)]


def _script(rule: str) -> str:
    return f"scripts/{RULES[rule].script}"


def _scripts(rules: list[str]) -> list[dict]:
    """The scripts of rules, each with the pinned packages that it imports, at the commit of the project."""
    commit = _commit()
    found = {}
    for rule in rules:
        required = [{"@id": f"#{name}"} for name in _versions(rule)]
        found[_script(rule)] = {
            "@id": _script(rule),
            "@type": "SoftwareApplication",
            "name": RULES[rule].script.removesuffix(".py"),
            "softwareRequirements": [*required, *([{"@id": "#snakemake"}] if "snakemake" in pins() else [])],
        } | ({"softwareVersion": commit} if commit else {})
    return list(found.values())


def _versions(rule: str) -> dict[str, str]:
    return versions(closure(SCRIPTS / RULES[rule].script))


def _software(required: dict[str, str]) -> list[dict]:
    """The pinned packages, and the workflow system."""
    required = required | {name: pins()[name] for name in ("snakemake",) if name in pins()}
    return [
        {"@id": f"#{name}", "@type": "SoftwareApplication", "name": name, "softwareVersion": version}
        for name, version in sorted(required.items())
    ]


def _commit() -> str | None:
    """The commit of the project, with a mark where files differ from it; None outside a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
