"""Which jobs of a study wait for which."""

from continuity.study import COMPACTED, RULES, TIMED, Job, Study, model_of


def needs(study: Study, job: Job) -> list[tuple[str, str]]:
    """The jobs that a job waits for, as (rule, output)."""
    keys, rule = job.wildcards, job.rule
    if rule in ("mixtures_run", "forecast_run", "crossed_run"):
        searched = "forecast_search_run" if rule != "mixtures_run" and study.search(keys["model"]) else None
        above = [_named(searched, model=keys["model"])] if searched else []
        return [_named("systems_simulate", system=keys["system"]), *above]
    if rule == "forecast_search_run":
        return [_named("systems_simulate", system=system) for system in study.config["forecast"]["search"]["systems"]]
    if rule in ("benchmark_run", "curriculum_run"):
        return [_named("tasks_make", task=keys["task"])]
    if rule == "latents_encode":
        model = model_of(keys["encoder"])
        trained = model in study.config["benchmark"]["models"]
        weights = [_named("benchmark_run", task=keys["task"], model=model)] if trained else []
        return [_named("tasks_make", task=keys["task"]), *weights]
    if rule == "score_run":
        return [_named("latents_encode", **keys)]
    return [(other, made.output) for other in _joined(study, rule) for made in study.jobs(other)]


def _joined(study: Study, rule: str) -> tuple[str, ...]:
    """The rules of which a rule without wildcards reads every output."""
    if rule in COMPACTED:
        return (COMPACTED[rule],)
    named = {study.output(other): other for other in RULES if not RULES[other].over}
    above = {
        "runs": TIMED,
        "gap": ("forecast",),
        "alignment": ("forecast", "mixtures"),
        "prediction": ("forecast", "mixtures", "benchmark", "score"),
        "time_to_target": ("curriculum", "curriculum_times"),
    }
    measured, tables = ([named[path] for path in paths] for paths in (study.measured(), study.tables()))
    above |= {"claims": measured, "figures": measured, "catalog": tables, "provenance": tables, "report": [*tables, "figures"]}
    return tuple(above.get(rule, ()))


def _named(rule: str, **keys: str) -> tuple[str, str]:
    return rule, RULES[rule].output.format(**keys)
