# The study behind the rules: its paths, job lists and identities are spelled in scripts/continuity/study.py.
import os
import shlex
import sys

SCRIPTS = os.path.join(workflow.basedir, "scripts")
sys.path.insert(0, SCRIPTS)
from continuity import study as studies

STUDY = studies.start(config)
ENVIRONMENT = os.path.join(workflow.basedir, "envs", "environment.yaml")
# A deployed environment brings its own Python; otherwise jobs run in the one that runs Snakemake.
PYTHON = (
    "python"
    if workflow.deployment_settings.deployment_method
    else shlex.quote(sys.executable)
)
# One thread a job, in every library: sums are then the same in every run, and jobs do not fight for cores.
STAGE = f"env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 {PYTHON} {shlex.quote(SCRIPTS)}"
IDENTITY = "--cfg {params.cfg:q} --code {params.code}"
LOGGED = "2>&1 | tee {log:q}"


def cfg(rule):
    return lambda wildcards: STUDY.cfg(rule, dict(wildcards))


def code(rule):
    return lambda wildcards: STUDY.code(rule, dict(wildcards))


def judge_by_own_identity(prepare=workflow._prepare_dag):
    """Force what other settings or code made, read from the files themselves: Snakemake's records do not travel with results."""

    def prepare_dag(*args, **kwargs):
        if (
            workflow.is_main_process
            and workflow.executor_plugin
            and not workflow.dryrun
        ):
            studies.claim(STUDY)
        settings = workflow.dag_settings
        settings.rerun_triggers = {
            one
            for one in settings.rerun_triggers
            if one.name not in ("CODE", "SOFTWARE_ENV")
        }
        settings.max_checksum_file_size = max(settings.max_checksum_file_size, 10**12)
        prepare(*args, **kwargs)
        workflow.dag.forcefiles |= set(STUDY.stale())

    workflow._prepare_dag = prepare_dag


judge_by_own_identity()


wildcard_constraints:
    system="[^/]+",
    task="[^/]+",
    model="[^/]+",
    encoder="[^/]+",
    dataset="[^/]+",
    host="[^/]+",


localrules:
    all,
