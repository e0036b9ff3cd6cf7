"""A study: its paths, its jobs, and each job's identity (cfg, code). Read by the Snakefile, so light to import.

Every path, every job list and every config slice is spelled here once.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from continuity import config as configuration
from continuity import locks, slurm, tables
from continuity.families import family
from continuity.identity import PACKAGE, ROOT, canonical, code_hash, module_file, plain
from continuity.problems import Problem

SCRIPTS = PACKAGE.parent
PRESENTATION = ("tables.toml",)
"""Package data that every reader of all tables depends on: column meanings and units."""


@dataclass(frozen=True)
class Job:
    """One job of a rule: its wildcards and the output that carries its identity, relative to the study's folder."""

    rule: str
    wildcards: dict
    output: str


@dataclass(frozen=True)
class Rule:
    """What a rule runs and reads.

    script: file name under scripts/ · output: pattern of the file that carries the identity · over: names of its wildcards
    (values from `Study.values`) · slice: the settings it reads · sources: extra code files · data: extra data files ·
    writes: result tables whose columns join its code.
    """

    script: str
    output: str
    over: tuple[str, ...] = ()
    slice: Callable[["Study", dict], dict] = lambda study, keys: {}
    sources: Callable[["Study", dict], list[Path]] = lambda study, keys: []
    data: Callable[["Study"], list[Path]] = lambda study: []
    writes: tuple[str, ...] = ()


TRAINED_BASELINES = ("mlp",)
"""Baselines of the forecast that are trained as the architectures are, learning rate and seeds included."""


def _entry(entries: list[dict], name: str) -> dict:
    return next(entry for entry in entries if entry["name"] == name)


def _system(study: "Study", keys: dict) -> dict:
    part = study.config["systems"]
    entry = _entry(part["list"], keys["system"])
    shared = {name: part[name] for name in ("seed", "step", "length", "n")}
    burn_in = {"burn_in": entry["burn_in"]} if "burn_in" in entry else {}
    return {"system": entry["name"], "parameters": entry.get("parameters", {})} | shared | burn_in


def _task(study: "Study", keys: dict) -> dict:
    entry = _entry(study.config["tasks"]["list"], keys["task"])
    made = {name: value for name, value in entry.items() if name != "curriculum"}
    return {"seed": study.config["tasks"]["seed"], "task": made}


def _trained(stage: str, *names: str) -> Callable:
    def cut(study: "Study", keys: dict) -> dict:
        part = study.config[stage]
        return (
            {name: part[name] for name in (*names, "seeds", "network", "training")}
            | {
                "model": study.trained_model(keys["model"]),
                "device": study.config["resources"]["device"],
            }
            | {name: value for name, value in keys.items() if name != "model"}
        )

    return cut


def _benchmark(study: "Study", keys: dict) -> dict:
    if keys["model"] in study.config["benchmark"]["baselines"]:
        return keys | {"model": {"name": keys["model"]}}
    return _trained("benchmark", "rates")(study, keys)


def model_of(encoder: str) -> str:
    """The model of an encoder: s4d of s4d@2, the states after its second layer."""
    return encoder.partition("@")[0]


def _latents(study: "Study", keys: dict) -> dict:
    part = study.config["latents"]
    cut = {"task": keys["task"], "encoder": keys["encoder"], "sequences": part["sequences"]}
    encoder = model_of(keys["encoder"])
    trained = encoder in study.config["benchmark"]["models"]
    if trained or encoder == "random":
        name = encoder if trained else study.config["benchmark"]["models"][0]
        cut |= {"model": study.model(name), "network": study.config["benchmark"]["network"]}
    return cut if trained or encoder == "raw" else cut | {"seed": part["seed"]}


def _score(study: "Study", keys: dict) -> dict:
    return keys | study.config["score"]


def _mixtures(study: "Study", keys: dict) -> dict:
    score = {name: value for name, value in study.config["score"].items() if name != "sensitivity"}
    return keys | study.config["mixtures"] | {"score": score}


def _forecast(study: "Study", keys: dict) -> dict:
    part = study.config["forecast"]
    names = ("constructions", "horizons", "context")
    mixtures = {"etas": study.config["mixtures"]["etas"], "mixture_seed": study.config["mixtures"]["seed"]}
    if keys["model"] not in study.forecasters:
        return {name: part[name] for name in names} | mixtures | keys | {"model": {"name": keys["model"]}}
    return _trained("forecast", *names, "readouts")(study, keys) | mixtures


def _primary(study: "Study") -> dict:
    """The first construction and readout of the forecast and its longest horizon: what the study concludes from."""
    part = study.config["forecast"]
    chosen = {"construction": part["constructions"][0], "horizon": max(part["horizons"]), "readout": part["readouts"][0]}
    return chosen | {"context": part["context"], "mixture_seed": study.config["mixtures"]["seed"]}


def _forecast_search(study: "Study", keys: dict) -> dict:
    search, cut = study.config["forecast"]["search"], _trained("forecast")(study, keys) | _primary(study)
    cut["training"] = cut["training"] | {"epochs": search["epochs"]}
    del cut["seeds"]
    return cut | {name: search[name] for name in ("rates", "systems", "etas", "seed")}


def _crossed(study: "Study", keys: dict) -> dict:
    cut = _primary(study) | {"etas": study.config["forecast"]["crossed"]["etas"]}
    if keys["model"] not in study.forecasters:
        return cut | keys | {"model": {"name": keys["model"]}}
    return _trained("forecast")(study, keys) | cut


def _prediction(study: "Study", keys: dict) -> dict:
    used = dict.fromkeys(study.config["forecast"]["models"] + study.config["benchmark"]["models"])
    return study.config["alignment"] | {"families": {name: family(study.model(name)) for name in used}}


def _convergence(study: "Study", keys: dict) -> dict:
    names = ("systems", "state", "horizon", "scales", "taus", "methods", "seed")
    return keys | {name: study.config["convergence"][name] for name in names}


def _refinement(study: "Study", keys: dict) -> dict:
    names = ("methods", "step_rules", "step_scales", "amplitudes", "step", "length", "n")
    system = _entry(study.config["refinement"]["systems"], keys["system"])
    return _trained("refinement", *names)(study, keys) | {
        "system": system,
        "data_seed": study.config["systems"]["seed"],
    }


def _curriculum(study: "Study", keys: dict) -> dict:
    cut = _trained("curriculum")(study, keys)
    plans = [
        {name: value for name, value in plan.items() if name not in ("tasks", "models")}
        for plan in study.config["curriculum"]["plans"]
        if keys["task"] in plan.get("tasks", [keys["task"]]) and keys["model"] in plan.get("models", [keys["model"]])
    ]
    return cut | {"plans": plans}


def _time_to_target(study: "Study", keys: dict) -> dict:
    part = study.config["curriculum"]
    automatic = [plan["name"] for plan in part["plans"] if "automatic" in plan]
    return part["targets"] | {"automatic": automatic}


def _stability(study: "Study", keys: dict) -> dict:
    part = study.config["stability"]
    shared = {name: value for name, value in part.items() if name not in ("datasets", "hosts")}
    found = {"dataset": _entry(part["datasets"], keys["dataset"]), "host": _entry(part["hosts"], keys["host"])}
    return shared | found | {"device": study.config["resources"]["device"]}


def _host_sources(study: "Study", keys: dict) -> list[Path]:
    """The file of the host and of the layer that it is made of."""
    host = _entry(study.config["stability"]["hosts"], keys["host"])
    layer = host.get("options", {}).get("layer", "mamba")
    classes = [configuration.known_hosts()[host["host"]]]
    classes += [configuration.known_layers()[layer]] if layer in configuration.known_layers() else []
    return [module_file(name.split(":")[0]) for name in classes]


def _layer_sources(study: "Study", keys: dict) -> list[Path]:
    """The file of the model that a job trains: a layer of the library, or the user's own module."""
    name = keys.get("model", model_of(keys.get("encoder", "")))
    models = {model["name"]: model for model in study.config["models"]}
    if name not in models:
        return []
    model = models[name]
    if "factory" in model:
        return [study.user_file(model["factory"])]
    return [module_file(configuration.known_layers()[model["layer"]].split(":")[0])]


def _task_sources(study: "Study", keys: dict) -> list[Path]:
    entry = _entry(study.config["tasks"]["list"], keys["task"])
    known = configuration.known_tasks()
    kind = configuration.kind_of(entry)
    return [module_file(known[kind if kind in known else "user"].split(":")[0])]


def _package_data(*patterns: str) -> Callable[["Study"], list[Path]]:
    return lambda study: sorted(path for pattern in patterns for path in PACKAGE.glob(pattern))


def _claims_data(study: "Study") -> list[Path]:
    return [ROOT / "config" / "claims.yaml", *_package_data("sql/**/*.sql")(study)]


RUN = "tables/{table}/{keys}/rows.parquet"


def _run(table: str, *keys: str) -> str:
    return RUN.format(table=table, keys="/".join(f"{key}={{{key}}}" for key in keys))


RULES: dict[str, Rule] = {
    "systems_simulate": Rule("systems.py", "data/systems/{system}.parquet", ("system",), _system),
    "tasks_make": Rule("tasks.py", _run("tasks", "task"), ("task",), _task, _task_sources, writes=("tasks",)),
    "benchmark_run": Rule(
        "benchmark.py", _run("benchmark", "task", "model"), ("scored_task", "benchmark_model"), _benchmark, _layer_sources,
        writes=("benchmark",),
    ),
    "latents_encode": Rule(
        "latents.py", "data/latents/task={task}/encoder={encoder}.parquet", ("scored_task", "encoder"), _latents, _layer_sources
    ),
    "score_run": Rule(
        "score.py", _run("score", "task", "encoder"), ("scored_task", "encoder"), _score,
        writes=("score", "similarity", "score_sensitivity"),
    ),
    "mixtures_run": Rule("mixtures.py", _run("mixtures", "system"), ("system",), _mixtures, writes=("mixtures",)),
    "forecast_run": Rule(
        "forecast.py", _run("forecast", "model", "system"), ("forecast_model", "system"), _forecast, _layer_sources,
        writes=("forecast",),
    ),
    "forecast_search_run": Rule(
        "forecast_search.py", _run("forecast_search", "model"), ("searched_model",), _forecast_search, _layer_sources,
        writes=("forecast_search",),
    ),
    "crossed_run": Rule(
        "crossed.py", _run("crossed", "model", "system"), ("crossed_model", "crossed_system"), _crossed, _layer_sources,
        writes=("crossed",),
    ),
    "convergence_run": Rule(
        "convergence.py", _run("convergence", "model"), ("convergence_model",), _convergence, writes=("convergence",)
    ),
    "refinement_run": Rule(
        "refinement.py", _run("refinement", "system", "model"), ("refinement_system", "refinement_model"), _refinement,
        _layer_sources, writes=("refinement", "diagnosis"),
    ),
    "curriculum_run": Rule(
        "curriculum.py", _run("curriculum", "task", "model"), ("curriculum_task", "curriculum_model"), _curriculum,
        _layer_sources, writes=("curriculum", "curriculum_times"),
    ),
    "dissipation_run": Rule(
        "dissipation.py", "tables/dissipation/theory/rows.parquet", slice=lambda study, keys: study.config["dissipation"],
        writes=("dissipation",),
    ),
    "stability_run": Rule(
        "stability.py", _run("stability", "dataset", "host"), ("dataset", "host"), _stability, _host_sources,
        writes=("stability", "robustness"),
    ),
}  # fmt: skip

COMPACTED = {
    "tasks": "tasks_make",
    "benchmark": "benchmark_run",
    "score": "score_run",
    "similarity": "score_run",
    "score_sensitivity": "score_run",
    "mixtures": "mixtures_run",
    "forecast": "forecast_run",
    "forecast_search": "forecast_search_run",
    "crossed": "crossed_run",
    "convergence": "convergence_run",
    "refinement": "refinement_run",
    "diagnosis": "refinement_run",
    "curriculum": "curriculum_run",
    "curriculum_times": "curriculum_run",
    "dissipation": "dissipation_run",
    "stability": "stability_run",
    "robustness": "stability_run",
}
"""Result tables joined from run files, and the rule that writes those."""

TIMED = (
    "tasks_make",
    "benchmark_run",
    "score_run",
    "mixtures_run",
    "forecast_run",
    "forecast_search_run",
    "crossed_run",
    "convergence_run",
    "refinement_run",
    "curriculum_run",
    "dissipation_run",
    "stability_run",
)
"""Rules whose runs leave a sidecar of times, devices and versions."""

DERIVED = ("gap", "alignment", "prediction", "time_to_target", "claims")
"""Result tables computed from other result tables."""

RULES |= {
    table: Rule(
        "compact.py", f"tables/{table}.parquet",
        slice=lambda study, keys, table=table: {"table": table, "runs": [job.output for job in study.jobs(COMPACTED[table])]},
        writes=(table,),
    )
    for table in COMPACTED
}  # fmt: skip
RULES |= {
    "runs": Rule(
        "compact.py", "tables/runs.parquet",
        slice=lambda study, keys: {"table": "runs", "runs": [job.output for rule in TIMED for job in study.jobs(rule)]},
        writes=("runs",),
    ),
    "gap": Rule(
        "gap.py", "tables/gap.parquet", slice=lambda study, keys: {"baselines": study.config["forecast"]["baselines"]},
        data=_package_data("sql/gap.sql"), writes=("gap",),
    ),
    "alignment": Rule(
        "alignment.py", "tables/alignment.parquet", slice=lambda study, keys: study.config["alignment"],
        data=_package_data("sql/views/advantage.sql"), writes=("alignment",),
    ),
    "prediction": Rule(
        "prediction.py", "tables/prediction.parquet", slice=_prediction,
        data=_package_data("sql/views/forecast_cell.sql", "sql/views/benchmark_cell.sql"), writes=("prediction",),
    ),
    "time_to_target": Rule(
        "time_to_target.py", "tables/time_to_target.parquet", slice=_time_to_target,
        data=_package_data("sql/time_to_target.sql"), writes=("time_to_target",),
    ),
    "claims": Rule(
        "claims.py", "tables/claims.parquet", slice=lambda study, keys: {"study": study.config["study"]},
        data=_claims_data, writes=("claims",),
    ),
    "catalog": Rule("catalog.py", "study.duckdb", data=_package_data(*PRESENTATION, "sql/**/*.sql")),
    "provenance": Rule("provenance.py", "provenance.json", slice=lambda study, keys: study.settings),
    "figures": Rule("figures.py", "figures/figures.json", data=_package_data("sql/**/*.sql")),
    "report": Rule(
        "report.py", "report.html", slice=lambda study, keys: study.settings,
        data=_package_data(*PRESENTATION, "sql/**/*.sql", "assets/*"),
    ),
}  # fmt: skip


@dataclass
class Study:
    """A validated configuration and everything that follows from it before anything runs."""

    config: dict

    def __post_init__(self):
        configuration.validate(self.config)
        self.config = plain(self.config)

    @property
    def root(self) -> Path:
        return Path(self.config["results"]) / self.config["study"]

    @property
    def settings(self) -> dict:
        """The configuration as the report shows it; where results lie is no setting of the study."""
        return {name: value for name, value in self.config.items() if name != "results"}

    def path(self, relative: str) -> str:
        return f"{self.root.as_posix()}/{relative}"

    def output(self, rule: str) -> str:
        """The pattern of the file that carries the identity of `rule`."""
        return self.path(RULES[rule].output)

    def beside(self, rule: str, name: str) -> str:
        """A second output of `rule`, beside its first."""
        return self.output(rule).rsplit("/", 1)[0] + f"/{name}"

    def log(self, rule: str) -> str:
        keys = "_".join(f"{{{key}}}" for key in self.wildcards(rule)) or "log"
        return self.path(f"logs/{rule}/{keys}.txt")

    @staticmethod
    def wildcards(rule: str) -> list[str]:
        """Names of a rule's wildcards as its output spells them."""
        return [name.rsplit("_", 1)[-1] for name in RULES[rule].over]

    def model(self, name: str) -> dict:
        return _entry(self.config["models"], name)

    def trained_model(self, name: str) -> dict:
        """A model by its name, or the baseline that is trained as the models are."""
        return {"name": name} if name in TRAINED_BASELINES else self.model(name)

    @cached_property
    def forecasters(self) -> list[str]:
        """What the forecast trains: its models, and the baselines that are trained as they are."""
        part = self.config["forecast"]
        return part["models"] + [name for name in part["baselines"] if name in TRAINED_BASELINES]

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """What each wildcard ranges over."""
        part = self.config
        return {
            "system": [system["name"] for system in part["systems"]["list"]],
            "task": [task["name"] for task in part["tasks"]["list"]],
            "scored_task": [task["name"] for task in part["tasks"]["list"] if task.get("curriculum") != "only"],
            "encoder": part["latents"]["encoders"],
            "benchmark_model": part["benchmark"]["models"] + part["benchmark"]["baselines"],
            "forecast_model": part["forecast"]["models"] + part["forecast"]["baselines"],
            "searched_model": self.forecasters if part["forecast"]["search"] else [],
            "crossed_model": (part["forecast"]["crossed"] or {}).get("models", []),
            "crossed_system": (part["forecast"]["crossed"] or {}).get("systems", []),
            "convergence_model": part["convergence"]["models"],
            "refinement_system": [system["name"] for system in part["refinement"]["systems"]],
            "refinement_model": part["refinement"]["models"],
            "curriculum_task": configuration.curriculum_tasks(part),
            "curriculum_model": part["curriculum"]["models"],
            "dataset": [dataset["name"] for dataset in part["stability"]["datasets"]],
            "host": [host["name"] for host in part["stability"]["hosts"]],
        }

    def jobs(self, rule: str) -> list[Job]:
        """Every job of a rule, in a fixed order."""
        names = self.wildcards(rule)
        keys = [{}]
        for name, source in zip(names, RULES[rule].over, strict=True):
            keys = [key | {name: value} for key in keys for value in self.values[source]]
        return [Job(rule, key, RULES[rule].output.format(**key)) for key in keys]

    def outputs(self, rule: str, name: str | None = None) -> list[str]:
        """First outputs of all jobs of a rule, or their second output called `name`."""
        paths = [self.path(job.output) for job in self.jobs(rule)]
        return [path.rsplit("/", 1)[0] + f"/{name}" for path in paths] if name else paths

    @property
    def sequences(self) -> str:
        return self.path("data/tasks/{task}.parquet")

    @property
    def weights(self) -> str:
        return self.path("data/encoders/task={task}/model={model}.pt")

    @property
    def similarity(self) -> str:
        return self.output("score_run").replace("/tables/score/", "/tables/similarity/")

    @property
    def sensitivity(self) -> str:
        return self.output("score_run").replace("/tables/score/", "/tables/score_sensitivity/")

    @property
    def diagnosis(self) -> str:
        return self.output("refinement_run").replace("/tables/refinement/", "/tables/diagnosis/")

    @property
    def curriculum_times(self) -> str:
        return self.output("curriculum_run").replace("/tables/curriculum/", "/tables/curriculum_times/")

    @property
    def robustness(self) -> str:
        return self.output("stability_run").replace("/tables/stability/", "/tables/robustness/")

    def search(self, model: str) -> list[str]:
        """The run file of the search for a model's learning rate; none where none is searched for."""
        return [self.output("forecast_search_run").format(model=model)] if model in self.values["searched_model"] else []

    def search_states(self) -> list[str]:
        """Trajectories of the systems of the search, in its order."""
        systems = (self.config["forecast"]["search"] or {}).get("systems", [])
        return [self.output("systems_simulate").format(system=system) for system in systems]

    def encoder_weights(self, task: str, encoder: str) -> list[str]:
        """The trained network behind an encoder; none for raw and random."""
        model = model_of(encoder)
        return [self.weights.format(task=task, model=model)] if model in self.config["benchmark"]["models"] else []

    def run_files(self, table: str) -> list[str]:
        """The declared run files that result table `table` is joined from."""
        rule = COMPACTED[table]
        own = RULES[rule].output.split("/")[1]
        return [path.replace(f"/tables/{own}/", f"/tables/{table}/") for path in self.outputs(rule)]

    def measured(self) -> list[str]:
        """Result tables that claims and figures read."""
        return [self.output(table) for table in (*COMPACTED, *DERIVED) if table != "claims"]

    def tables(self) -> list[str]:
        """Every result table."""
        return [*self.measured(), self.output("claims"), self.output("runs")]

    def sidecars(self) -> list[str]:
        return [path for rule in TIMED for path in self.outputs(rule, "runs.parquet")]

    def cfg(self, rule: str, keys: dict | None = None) -> str:
        """Canonical JSON of the settings that one job of `rule` reads."""
        return canonical(RULES[rule].slice(self, dict(keys or {})))

    def code(self, rule: str, keys: dict | None = None) -> str:
        """Hash of the code, columns and pinned versions that one job of `rule` runs with."""
        entry = RULES[rule]
        columns = {name: [[c.name, c.type] for c in tables.TABLES[name].columns] for name in entry.writes}
        sources = (SCRIPTS / entry.script, *entry.sources(self, dict(keys or {})))
        return code_hash(sources, tuple(entry.data(self)), canonical(columns))

    def user_file(self, factory: str) -> Path:
        """The file of a user's `module:function`, looked for in the working directory, then in the project."""
        name = factory.split(":")[0]
        found = next(filter(None, (module_file(name, base) for base in (Path.cwd(), ROOT))), None)
        if found is None:
            raise configuration.ConfigError([f"models: {factory}: no module {name} in {Path.cwd()} or {ROOT}"])
        return found

    def task_files(self, task: str) -> list[str]:
        """The user's own file of a task; none where the task is made or ships in a package."""
        entry = _entry(self.config["tasks"]["list"], task)
        return [entry["path"]] if "path" in entry else []

    def series_files(self, dataset: str) -> list[str]:
        """The user's own file of a forecasting set; none where it ships in a package or lies on a hub."""
        entry = _entry(self.config["stability"]["datasets"], dataset)
        return [entry["path"]] if "path" in entry else []

    def check(self) -> None:
        """Raise ConfigError where the study cannot start: files that are missing, a results folder that refuses writing."""
        problems = [
            f"{where}: {entry['name']}: {entry['path']}: no such file"
            for where, entries in (
                ("tasks.list", self.config["tasks"]["list"]),
                ("stability.datasets", self.config["stability"]["datasets"]),
            )
            for entry in entries
            if "path" in entry and not Path(entry["path"]).exists()
        ]
        for model in self.config["models"]:
            if "factory" in model:
                self.user_file(model["factory"])
        if problems:
            raise configuration.ConfigError(problems)

    def writable(self) -> None:
        """Raise ConfigError unless the study's folder can be written."""
        probe = self.root / f".probe-{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"0" * 4096)
            probe.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                probe.unlink()
            raise configuration.ConfigError([tables.explain(error, self.root)]) from None

    def stale(self) -> list[str]:
        """Outputs that exist and were made by other settings or other code, by what their files say of themselves."""
        found = []
        for rule in RULES:
            for job in self.jobs(rule):
                path = Path(self.path(job.output))
                if path.exists() and stamp(path) != (self.cfg(rule, job.wildcards), self.code(rule, job.wildcards)):
                    found.append(path.as_posix())
        return found

    def memory_mb(self, rule: str, keys: dict, attempt: int = 1) -> int:
        """MB that a job of `rule` asks a scheduler for: its estimate, at most the setting at first, doubled with each retry."""
        return self._planner.memory_mb(rule, keys, attempt)

    def minutes(self, rule: str, keys: dict, attempt: int = 1) -> int:
        """Minutes that a job of `rule` asks a scheduler for, as `memory_mb`."""
        return self._planner.minutes(rule, keys, attempt)

    @cached_property
    def _planner(self):
        from continuity.planner import planner_of

        return planner_of(self, "cpu" if self.config["resources"]["device"] == "cpu" else "cuda")

    def gpus(self, rule: str, keys: dict) -> int:
        """GPUs that one job of `rule` asks for: one where it trains on a device that may be a GPU."""
        return int(RULES[rule].slice(self, keys).get("device", "cpu") != "cpu")

    def lock(self) -> None:
        """Hold the study until this process ends; ConfigError where another run holds it."""
        if not locks.hold(self.root / locks.STUDY):
            raise configuration.ConfigError([f"{self.root}: another run of this study is going on; wait for it or stop it"])

    def wait(self) -> None:
        """Wait for jobs that outlived their run: they would write beside the new ones."""
        if not locks.free(self.root / locks.JOBS):
            print(f"{self.root}: waiting for a job that outlived an earlier run; Ctrl-C gives up", file=sys.stderr)
            while not locks.free(self.root / locks.JOBS):
                time.sleep(1)


def stamp(path: Path) -> tuple[str, str]:
    """The (cfg, code) that a file carries: in its Parquet metadata, or in a small file beside it."""
    if path.suffix == ".parquet":
        found = tables.metadata(path)
        return found.get("cfg", ""), found.get("code", "")
    return tables.read_stamp(path)


def claim(study: Study, scheduler: bool = False) -> None:
    """Make sure that the study can be written and that nobody else works on it; else one line a problem and exit 2.

    scheduler: whether jobs go to Slurm, whose queue must then answer.
    """
    with exits():
        if scheduler:
            slurm.present()
        study.writable()
        study.lock()
        slurm.settle(study.config["study"], scheduler)
        study.wait()


def start(config: dict) -> Study:
    """The study of a Snakefile's config; on problems, one line each and exit 2."""
    with exits():
        study = Study(config)
        study.check()
    return study


@contextlib.contextmanager
def exits() -> Iterator[None]:
    """Turn a Problem into one line a problem on standard error and exit 2."""
    try:
        yield
    except Problem as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        sys.exit(2)
