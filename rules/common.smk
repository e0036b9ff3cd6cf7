# The study behind the rules: its paths, job lists and identities are spelled in scripts/continuity/study.py.
import os
import shlex
import sys
from math import inf

SCRIPTS = os.path.join(workflow.basedir, "scripts")
sys.path.insert(0, SCRIPTS)
from continuity import slurm
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
# Asked to stop, a script saves and leaves; its shell and its log must outlive it. A prefix takes the place of Snakemake's own, which
# is said again: without pipefail the log's exit status would stand for the script's.
LOGGED = "2>&1 | (trap '' INT TERM; exec tee {log:q})"
shell.prefix("set -euo pipefail; trap : TERM; ")


def cfg(rule):
    return lambda wildcards: STUDY.cfg(rule, dict(wildcards))


def code(rule):
    return lambda wildcards: STUDY.code(rule, dict(wildcards))


def gpus(rule):
    return lambda wildcards: STUDY.gpus(rule, dict(wildcards))


# Minutes that the partition of a rule's jobs allows: a retry asks for no more.
LONGEST = {}


def memory(rule):
    return lambda wildcards, attempt: STUDY.memory_mb(rule, dict(wildcards), attempt)


def minutes(rule):
    return lambda wildcards, attempt: min(
        STUDY.minutes(rule, dict(wildcards), attempt), LONGEST.get(rule, inf)
    )


def on_slurm():
    return hasattr(workflow.executor_settings, "jobname_prefix")


def judge_by_own_identity(prepare=workflow._prepare_dag):
    """Force what other settings or code made, read from the files themselves: Snakemake's records do not travel with results."""

    def prepare_dag(*args, **kwargs):
        main = workflow.is_main_process
        if main and workflow.executor_plugin and not workflow.dryrun:
            studies.claim(STUDY, scheduler=on_slurm())
            if on_slurm():
                name = slurm.label(STUDY.config["study"])
                workflow.executor_settings.jobname_prefix = name
        settings = workflow.dag_settings
        settings.rerun_triggers = {
            one
            for one in settings.rerun_triggers
            if one.name not in ("CODE", "SOFTWARE_ENV")
        }
        settings.max_checksum_file_size = max(settings.max_checksum_file_size, 10**12)
        prepare(*args, **kwargs)
        if main:
            workflow.dag.forcefiles |= set(STUDY.stale())

    workflow._prepare_dag = prepare_dag


judge_by_own_identity()


onstart:
    if workflow.is_main_process and on_slurm():
        sent = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
        with studies.exits():
            allowed = slurm.check(job.resources for job in sent)
        for job in sent:
            partition = job.resources.get("slurm_partition")
            LONGEST[job.rule.name] = allowed.get(partition, inf)


wildcard_constraints:
    system="[^/]+",
    task="[^/]+",
    model="[^/]+",
    encoder="[^/]+",
    dataset="[^/]+",
    host="[^/]+",


# Where other rules run on a cluster, these run where Snakemake does.
localrules:
    all,
    systems,
    latents,
    tasks,
    benchmark,
    score,
    similarity,
    score_sensitivity,
    mixtures,
    forecast,
    gap,
    alignment,
    prediction,
    forecast_search,
    crossed,
    convergence,
    refinement,
    diagnosis,
    curriculum,
    curriculum_times,
    time_to_target,
    dissipation,
    stability,
    robustness,
    runs,
    claims,
    figures,
    catalog,
    provenance,
    report,
