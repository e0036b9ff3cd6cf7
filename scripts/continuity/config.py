"""Configuration of a study: load, overlay, validate. A problem is one line that names the key and the remedy."""

import difflib
import json
from collections.abc import Iterable
from pathlib import Path

import yaml

from continuity.identity import PACKAGE, ROOT, literal, spell
from continuity.problems import Problem

DEFAULT = ROOT / "config" / "config.yaml"
SCHEMA = ROOT / "config" / "schema.yaml"
TYPE_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
}


BASELINES = ("persistence", "ridge", "mlp", "majority", "linear_pooled", "linear_flat")
"""Names in the result tables that no model may have."""


class ConfigError(Problem):
    """What is wrong with a configuration."""


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error instead of a silent override."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = sorted({str(key) for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigError([f"line {node.start_mark.line + 1}: key {twice[0]} is given twice; keep one"])
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(path: Path | str) -> dict:
    """One YAML file as a mapping; anything else is a ConfigError that names the file."""
    path = Path(path)
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.yaml")], 1)
        raise ConfigError([f"{path}: no such file{f'; did you mean {path.parent / near[0]}?' if near else ''}"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: unreadable: {error}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: not valid YAML: {' '.join(str(error).split())}"]) from None
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None
    if not isinstance(found, dict):
        raise ConfigError([f"{path}: must be a mapping of keys, not {type(found).__name__}"])
    return found


def overlay(base: dict, top: dict) -> dict:
    """`top` laid onto `base`: mappings merge, anything else replaces."""
    merged = dict(base)
    for name, value in top.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = overlay(merged[name], value) if both else value
    return merged


def load(path: Path | str | None = None) -> dict:
    """The default configuration with `path` laid onto it, validated."""
    config = read(DEFAULT)
    if path is not None and Path(path).resolve() != DEFAULT.resolve():
        config = overlay(config, read(path))
    validate(config)
    return config


def _where(path: Iterable) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the configuration"


def _resolved(node: dict) -> dict:
    return read(SCHEMA)["$defs"][node["$ref"].split("/")[-1]] if "$ref" in node else node


def _nearest(name: str, known: Iterable[str], deeper: Iterable[str] = ()) -> str:
    """The known name most like `name`, or one inside a section (`training.epochs`), or all known ones."""
    known = sorted(known)
    inside = {path.split(".")[-1]: path for path in sorted(deeper)}
    near = difflib.get_close_matches(str(name), known, 1, 0.6)
    near = near or [inside[match] for match in difflib.get_close_matches(str(name), inside, 1, 0.6)]
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"


def _numeric(value) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _type_problem(where: str, wanted, value) -> str:
    wanted = [wanted] if isinstance(wanted, str) else wanted
    words = " or ".join(TYPE_WORDS.get(kind, kind) for kind in wanted)
    if isinstance(value, str) and {"integer", "number"} & set(wanted) and _numeric(value):
        return f"{where}: {value!r} is text; write {spell(float(value))} without quotes (1e-3 is text, 1.0e-3 a number)"
    if isinstance(value, bool):
        return f"{where}: is {str(value).lower()}, must be {words}; quote yes, no, on and off to keep them text"
    return f"{where}: must be {words}, is {value!r}"


def _explain(error) -> list[str]:
    where = _where(error.absolute_path)
    prefix = "" if where == "the configuration" else f"{where}."
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        deeper = {f"{name}.{inner}" for name, node in known.items() for inner in _resolved(node).get("properties", {})}
        unknown = [name for name in error.instance if name not in known]
        return [f"{prefix}{name}: unknown key; {_nearest(name, known, deeper)}" for name in unknown]
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [f"{prefix}{name}: missing; config/README.md says what it means" for name in missing]
    if error.validator == "type":
        return [_type_problem(where, error.validator_value, error.instance)]
    if error.validator == "enum":
        known = [str(value) for value in error.validator_value]
        return [f"{where}: {error.instance!r} is not known; {_nearest(str(error.instance), known)}"]
    if error.validator == "oneOf" and all(set(option) == {"required"} for option in error.validator_value):
        return [f"{where}: give exactly one of {', '.join(option['required'][0] for option in error.validator_value)}"]
    if error.validator == "oneOf" and error.context:
        return _explain(error.context[0]) if isinstance(error.instance, str) else [f"{where}: {error.instance!r} does not fit"]
    return [f"{where}: {error.message}"]


def known_layers() -> dict[str, str]:
    return literal(PACKAGE / "layers" / "__init__.py", "LAYER_MODULES")


def known_tasks() -> dict[str, str]:
    return literal(PACKAGE / "tasks" / "__init__.py", "TASK_MODULES")


def known_hosts() -> dict[str, str]:
    return literal(PACKAGE / "hosts" / "__init__.py", "HOST_MODULES")


def validate(config: dict) -> None:
    """Raise ConfigError with every problem of `config`: unknown or mistyped keys, then combinations that cannot run."""
    import jsonschema

    schema = read(SCHEMA)
    # Compare as JSON would: tuples and other YAML types have no place in a configuration.
    config = json.loads(json.dumps(config, default=str))
    problems = []
    for error in jsonschema.Draft202012Validator(schema).iter_errors(config):
        problems += _explain(error)
    if not problems:
        problems = list(_combinations(config))
    if problems:
        raise ConfigError(dict.fromkeys(problems))


def _twice(where: str, names: list) -> list[str]:
    again = sorted({str(name) for name in names if names.count(name) > 1})
    return [f"{where}: {name} is listed twice; keep one" for name in again]


def _combinations(config: dict) -> Iterable[str]:
    yield from _names(config)
    yield from _sizes(config)
    yield from _forecasts(config)
    yield from _lengths(config)
    yield from _storages(config)


def _names(config: dict) -> Iterable[str]:
    from continuity.sizes import TASKS, Sizes

    models = {model["name"] for model in config["models"]}
    tasks = [task["name"] for task in config["tasks"]["list"]]
    yield from _twice("models", [model["name"] for model in config["models"]])
    yield from _twice("systems.list", [system["name"] for system in config["systems"]["list"]])
    yield from _twice("tasks.list", tasks)
    for stage in ("benchmark", "forecast", "refinement", "curriculum"):
        yield from _twice(f"{stage}.models", config[stage]["models"])
        yield from _twice(f"{stage}.seeds", config[stage]["seeds"])
        for name in config[stage]["models"]:
            if name not in models:
                yield f"{stage}.models: {name} is not among the models; {_nearest(name, models)}"
    yield from _twice("refinement.systems", [system["name"] for system in config["refinement"]["systems"]])
    for where in (
        "forecast.horizons",
        "forecast.readouts",
        "mixtures.etas",
        "mixtures.constructions",
        "latents.encoders",
    ):
        stage, name = where.split(".")
        yield from _twice(where, config[stage][name])
    trained = set(config["benchmark"]["models"])
    for name in config["latents"]["encoders"]:
        known = {"raw", "random"} | trained
        model, at, depth = name.partition("@")
        if at and model in trained and not 1 <= int(depth or 0) <= config["benchmark"]["network"]["n_layers"]:
            yield f"latents.encoders: {name} is deeper than benchmark.network.n_layers; layers count from 1"
        if model not in known or at and model not in trained:
            yield f"latents.encoders: {name} is neither raw, random nor in benchmark.models; {_nearest(name, known)}"
    for index, model in enumerate(config["models"]):
        if "layer" in model and model["layer"] not in known_layers():
            yield f"models[{index}].layer: {model['layer']} is not a layer; {_nearest(model['layer'], known_layers())}"
    for index, task in enumerate(config["tasks"]["list"]):
        kind, of = kind_of(task), f" of kind {task['kind']}" if "kind" in task else ""
        if "path" not in task and kind not in known_tasks():
            near = _nearest(kind, known_tasks())
            yield f"tasks.list[{index}]: {task['name']}{of} is not a known task and gives no path; {near}"
        if "path" in task and "label" not in task and kind not in known_tasks():
            yield f"tasks.list[{index}]: {task['name']} has a path but no label; name the label column"
        if "permute" in task and kind in TASKS:
            amount, where = Sizes(config).task(task["name"]), f"tasks.list[{index}].permute"
            if amount.vocabulary:
                yield f"{where}: sequences of {kind} differ in length; no one order fits them all"
            elif task["permute"] >= amount.length:
                yield f"{where}: {task['permute']} must be below the length of the sequences, {amount.length}"
        digits, there = sum(task.get("n", {}).values()), sum(TASKS["smnist"][0])
        if kind == "smnist" and digits > there:
            yield f"tasks.list[{index}].n: asks for {digits} digits, there are {there}"
    yield from _plans(config, tasks)
    stability = config["stability"]
    yield from _twice("stability.datasets", [dataset["name"] for dataset in stability["datasets"]])
    yield from _twice("stability.hosts", [host["name"] for host in stability["hosts"]])
    for index, host in enumerate(stability["hosts"]):
        if host["host"] not in known_hosts():
            yield f"stability.hosts[{index}].host: {host['host']} is not a host; {_nearest(host['host'], known_hosts())}"
    missing = set(config["forecast"]["constructions"]) - set(config["mixtures"]["constructions"])
    for name in sorted(missing):
        yield f"forecast.constructions: {name} is not in mixtures.constructions; add it there"


def _sizes(config: dict) -> Iterable[str]:
    """What is wrong with the sizes of networks: their width is given, or follows from their number of parameters."""
    for stage in ("benchmark", "forecast"):
        width, size = (config[stage]["network"].get(name) for name in ("d_model", "parameters"))
        if width is None and size is None:
            yield f"{stage}.network: give d_model, or the number of parameters from which it follows"
        elif width is not None and size is not None:
            yield f"{stage}.network: d_model {width} and parameters {size} are both given; set one of them to null"
    for index, model in enumerate(config["models"]):
        for name, values in model.get("match", {}).items():
            if not isinstance(values, list) or not values:
                yield f"models[{index}].match.{name}: {values!r} must be a list of values to try"


def _forecasts(config: dict) -> Iterable[str]:
    """What is wrong with the search for learning rates and with the crossed mixtures."""
    part, systems = config["forecast"], [system["name"] for system in config["systems"]["list"]]
    names = {"models": [*part["models"], *part["baselines"]], "systems": systems}
    homes = {"models": "forecast.models or baselines", "systems": "systems.list"}
    for section in ("search", "crossed"):
        for item, values in (part[section] or {}).items():
            if not isinstance(values, list):
                continue
            yield from _twice(f"forecast.{section}.{item}", values)
            for value in values:
                if value not in names.get(item, [value]):
                    yield f"forecast.{section}.{item}: {value} is not in {homes[item]}; {_nearest(value, names[item])}"
    for model in config["models"]:
        if model["name"] in BASELINES:
            yield f"models: {model['name']} is the name of a baseline; choose another"


def _storages(config: dict) -> Iterable[str]:
    """What is wrong with the storages of the stability stage, or with those of one host."""
    from continuity.variants import variants

    part = config["stability"]
    for entry in (part, *part["hosts"]):
        try:
            variants(entry.get("storages", []))
        except Problem as error:
            yield from error.problems


def kind_of(task: dict) -> str:
    """What kind of task an entry of tasks.list is: its own name where it does not say."""
    return task.get("kind", task["name"])


def curriculum_tasks(config: dict) -> list[str]:
    """The tasks of the curriculum: those named; else those kept for it, or all that are not kept out."""
    entries = config["tasks"]["list"]
    kept = [task["name"] for task in entries if task.get("curriculum") == "only"]
    return config["curriculum"]["tasks"] or kept or [task["name"] for task in entries if task.get("curriculum", True)]


def _plans(config: dict, tasks: list[str]) -> Iterable[str]:
    """What is wrong with the plans of the curriculum, and with the tasks and models that they name."""
    from continuity.stages import plan_of

    part = config["curriculum"]
    chosen = curriculum_tasks(config)
    if not chosen:
        yield "curriculum.tasks: no task is left, as each of tasks.list says curriculum: false"
    yield from _twice("curriculum.tasks", chosen)
    yield from _twice("curriculum.plans", [plan["name"] for plan in part["plans"]])
    named = [("curriculum.tasks", name, tasks, "tasks.list") for name in chosen]
    for index, plan in enumerate(part["plans"]):
        where = f"curriculum.plans[{index}]"
        named += [(f"{where}.tasks", name, chosen, "curriculum.tasks") for name in plan.get("tasks", [])]
        named += [(f"{where}.models", name, part["models"], "curriculum.models") for name in plan.get("models", [])]
        try:
            plan_of(plan).counts(part["training"]["epochs"])
        except ValueError as error:
            yield f"{where}: {plan['name']}: {error}"
    for where, name, known, home in named:
        if name not in known:
            yield f"{where}: {name} is not in {home}; {_nearest(name, known)}"


def _lengths(config: dict) -> Iterable[str]:
    score, length = config["score"], config["systems"]["length"]
    longest = score["max_separation"]
    if longest is not None and longest <= score["min_separation"]:
        yield f"score.max_separation: {longest} must exceed min_separation {score['min_separation']}"
    if score["max_lag"] >= score["min_separation"]:
        yield f"score.max_lag: {score['max_lag']} must be below min_separation {score['min_separation']}"
    if isinstance(score["weights"], list) and len(score["weights"]) != score["max_lag"]:
        yield f"score.weights: {len(score['weights'])} weights for {score['max_lag']} lags; give one a lag"
    if length <= score["min_separation"]:
        yield f"systems.length: {length} must exceed score.min_separation {score['min_separation']}, or no pair is far"
    for horizon in config["forecast"]["horizons"]:
        if config["forecast"]["context"] + horizon > length:
            context = config["forecast"]["context"]
            yield f"forecast.horizons: context {context} + horizon {horizon} exceeds systems.length {length}"
    for index, task in enumerate(config["tasks"]["list"]):
        if "length" in task and task["length"][0] > task["length"][1]:
            yield f"tasks.list[{index}].length: {task['length']} must be [shortest, longest]"
    for where, systems in (
        ("systems.list", config["systems"]["list"]),
        ("refinement.systems", config["refinement"]["systems"]),
    ):
        for index, system in enumerate(systems):
            for name, value in system.get("parameters", {}).items():
                if isinstance(value, list) and value[0] > value[1]:
                    yield f"{where}[{index}].parameters.{name}: {value} must be [low, high]"
    yield from _refined(config["refinement"])


def _refined(refinement: dict) -> Iterable[str]:
    scales = refinement["step_scales"]
    if 1 not in scales:
        yield "refinement.step_scales: must hold 1, the step of training"
    finest = min(scales)
    for scale in scales:
        ratio = scale / finest
        if abs(ratio - round(ratio)) > 1e-9:
            yield f"refinement.step_scales: {scale} is not a whole multiple of the finest, {finest}"
        elif scale > 1 and refinement["length"] % scale:
            yield f"refinement.step_scales: stride {scale} does not divide refinement.length {refinement['length']}"
