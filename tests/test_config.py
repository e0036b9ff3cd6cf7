"""Configuration: one line a problem, the nearest known key, and every key documented."""

import copy
from pathlib import Path

import pytest
import yaml
from continuity import config
from continuity.study import Study

ROOT = Path(__file__).parents[1]
SMALL = {"name": "smnist14", "kind": "smnist", "size": 14}


@pytest.fixture(scope="module")
def default():
    return config.read(config.DEFAULT)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "config").glob("*.yaml")))
def test_every_shipped_configuration_is_valid(name):
    if name in ("schema.yaml", "claims.yaml"):
        return
    assert config.load(ROOT / "config" / name)["study"]


def changed(base, path, value):
    found = copy.deepcopy(base)
    *parents, last = path.split(".")
    place = found
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place[parent]
    place[int(last) if last.isdigit() else last] = value
    return found


def problems(found):
    with pytest.raises(config.ConfigError) as error:
        config.validate(found)
    assert all("\n" not in problem for problem in error.value.problems)
    return error.value.problems


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("forcast", {}, ["forcast: unknown key", "did you mean forecast"]),
        ("forecast.epocs", 3, ["forecast.epocs: unknown key", "did you mean training.epochs"]),
        ("forecast.training.epoch", 3, ["did you mean epochs"]),
        ("systems.list.0.nam", "vdp", ["did you mean name"]),
        ("tasks.list.0.pth", "a.csv", ["did you mean path"]),
        ("forecast.training.lr", "1e-3", ["is text", "0.001"]),
        ("forecast.training.epochs", "10", ["is text"]),
        ("forecast.training.epochs", 2.5, ["a whole number"]),
        ("forecast.training", "{d: 128}", ["must be a mapping"]),
        ("forecast.seeds", 3, ["must be a list"]),
        ("study", False, ["quote yes, no, on and off"]),
        ("systems.list.0.name", "vpd", ["did you mean vdp"]),
        ("models.0.layer", "s4dd", ["did you mean s4d"]),
        ("forecast.models", ["s7"], ["forecast.models: s7 is not among the models"]),
        ("forecast.network.d_model", 32, ["d_model 32 and parameters 6000 are both given"]),
        ("forecast.network.parameters", None, ["give d_model, or the number of parameters"]),
        ("models.0.match", {"d_state": 8}, ["models[0].match.d_state: 8 must be a list"]),
        ("models.0.name", "ridge", ["models: ridge is the name of a baseline"]),
        ("forecast.search.systems", ["vpd"], ["forecast.search.systems: vpd is not in systems.list; did you mean vdp"]),
        ("forecast.search.rates", [0.01, 0.01], ["forecast.search.rates: 0.01 is listed twice"]),
        ("forecast.crossed.models", ["s4"], ["forecast.crossed.models: s4 is not in forecast.models or baselines"]),
        ("latents.encoders", ["row"], ["did you mean raw"]),
        ("stability.storages", [{"name": "identity"}], ["stability.storages: identity: needs `weights` above 0"]),
        ("stability.hosts.0.storages", [{"name": "diagonal", "weights": [0]}], ["diagonal: needs `weights` above 0"]),
        ("tasks.list.0.name", "smist", ["did you mean smnist"]),
        ("tasks.list.1.permute", 1, ["tasks.list[1].permute: sequences of listops differ in length"]),
        ("tasks.list.0.permute", 784, ["tasks.list[0].permute: 784 must be below the length of the sequences, 784"]),
        (
            "tasks.list.0",
            SMALL | {"permute": 196},
            ["tasks.list[0].permute: 196 must be below the length of the sequences, 196"],
        ),
        ("benchmark.rates", 0.01, ["benchmark.rates: must be a list or null, is 0.01"]),
        ("benchmark.rates", [], ["benchmark.rates: [] should be non-empty"]),
        ("tasks.list.0.n.train", 4900, ["tasks.list[0].n: asks for 5700 digits, there are 5000"]),
        ("tasks.list.0", SMALL | {"kind": "smist"}, ["smnist14 of kind smist is not a known task", "did you mean smnist"]),
        ("curriculum.tasks", ["smnist15"], ["curriculum.tasks: smnist15 is not in tasks.list; did you mean smnist"]),
        ("tasks.list.0.curriculum", "onyl", ["tasks.list[0].curriculum", "only"]),
        ("mixtures.etas", [0, 0.0], ["listed twice"]),
        ("forecast.seeds", [1, 1], ["listed twice"]),
        ("mixtures.etas", [1.5], ["mixtures.etas[0]"]),
        ("score.max_lag", 200, ["must be below min_separation"]),
        ("score.max_separation", 100, ["must exceed min_separation"]),
        ("score.weights", [1.0, 2.0], ["give one a lag"]),
        ("systems.length", 100, ["systems.length: 100 must exceed"]),
        ("forecast.horizons", [600], ["exceeds systems.length"]),
        ("refinement.step_scales", [0.25, 0.5, 1, 3], ["does not divide refinement.length"]),
        ("refinement.step_scales", [0.25, 0.5, 2], ["must hold 1"]),
        ("refinement.step_scales", [0.3, 0.5, 1], ["not a whole multiple"]),
        ("systems.list.0.parameters", {"mu": [5, 1]}, ["must be [low, high]"]),
        ("tasks.list.0.length", [9, 3], ["must be [shortest, longest]"]),
        ("models.0.factory", "here:there", ["exactly one of layer, factory"]),
        ("study", "a b", ["study"]),
    ],
)
def test_a_problem_names_the_key_and_the_remedy(default, path, value, words):
    text = "\n".join(problems(changed(default, path, value)))
    assert all(word in text for word in words), text


def test_every_problem_is_told_at_once(default):
    found = changed(changed(default, "forecast.training.lr", "1e-3"), "score.maxlag", 3)
    assert len(problems(found)) == 2


def test_a_missing_key_is_named(default):
    found = copy.deepcopy(default)
    del found["score"]["max_lag"]
    assert problems(found) == ["score.max_lag: missing; config/README.md says what it means"]


def test_the_schema_forbids_unknown_keys_at_every_level():
    schema = config.read(config.SCHEMA)
    free = {"options", "parameters", "match"}

    def walk(node, name):
        if isinstance(node, dict):
            if node.get("type") == "object" and name not in free:
                assert node.get("additionalProperties") is False, name
            for key, value in node.items():
                walk(value, key)
        elif isinstance(node, list):
            for value in node:
                walk(value, name)

    walk(schema, "root")


def test_the_curriculum_takes_the_tasks_that_are_kept_for_it_or_all_of_them(default):
    default = changed(default, "tasks.list", [{"name": "smnist"}, {"name": "listops"}, dict(SMALL, name="small")])
    smnist, listops, small = default["tasks"]["list"]
    names = ["smnist", "listops", "small"]
    assert Study(default).values["curriculum_task"] == Study(default).values["scored_task"] == names
    listops["curriculum"] = False
    assert Study(default).values["curriculum_task"] == ["smnist", "small"]
    assert Study(default).values["scored_task"] == names
    small["curriculum"] = "only"
    assert Study(default).values["curriculum_task"] == ["small"]
    assert Study(default).values["scored_task"] == ["smnist", "listops"]
    for task in (smnist, small):
        task["curriculum"] = False
    assert "curriculum.tasks: no task is left, as each of tasks.list says curriculum: false" in problems(default)


def test_an_overlay_merges_mappings_and_replaces_lists():
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert config.overlay(base, {"a": {"c": [3]}, "e": 2}) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": 2}


@pytest.mark.parametrize(
    "text, words",
    [
        ("a: 1\na: 2\n", "given twice"),
        ("a: [1\n", "not valid YAML"),
        ("- 1\n", "must be a mapping"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, text, words):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(config.ConfigError) as error:
        config.load(path)
    assert len(error.value.problems) == 1 and words in error.value.problems[0] and str(path) in error.value.problems[0]


def test_a_missing_file_suggests_the_nearest(tmp_path):
    (tmp_path / "tiny.yaml").write_text("study: a\n")
    with pytest.raises(config.ConfigError, match="did you mean .*tiny.yaml"):
        config.load(tmp_path / "tinny.yaml")


def test_yaml_numbers_in_other_spellings_are_one_setting(default):
    one, two = changed(default, "mixtures.etas", [0, 1]), changed(default, "mixtures.etas", [0.0, 1.0])
    keys = {"model": "s4d", "system": "vdp"}
    assert Study(one).cfg("forecast_run", keys) == Study(two).cfg("forecast_run", keys)


def leaves(node, definitions, name=""):
    """Dotted names of every key that the schema allows, lists passed through."""
    node = definitions[node["$ref"].split("/")[-1]] if "$ref" in node else node
    if node.get("type") == "array":
        yield from leaves(node.get("items", {}), definitions, name)
    for key, value in node.get("properties", {}).items():
        yield f"{name}.{key}".lstrip(".")
        yield from leaves(value, definitions, f"{name}.{key}".lstrip("."))


def test_every_key_is_documented():
    schema = config.read(config.SCHEMA)
    text = (ROOT / "config" / "README.md").read_text()
    headings = " ".join(line for line in text.splitlines() if line.startswith("## ")).replace(",", " ").split()
    for name in leaves(schema, schema["$defs"]):
        *groups, last = name.split(".")
        if not groups and name in headings or "n" in groups:
            continue
        shared = next((group for group in ("network", "training") if group in groups), None)
        short = (
            f"{shared}.{last}"
            if shared
            else name.replace("refinement.systems.", "systems.list.").replace(
                "stability.hosts.storages.", "stability.storages."
            )
        )
        assert f"`{short}`" in text, f"{name} is not in config/README.md"


def test_the_conda_file_pins_what_the_lock_pins():
    lock = (ROOT / "envs" / "requirements.lock").read_text().split()
    conda = yaml.safe_load((ROOT / "envs" / "environment.yaml").read_text())["dependencies"]
    assert conda[-1]["pip"] == lock and "python=3.11" in conda


def test_the_lock_pins_exact_public_versions():
    for line in (ROOT / "envs" / "requirements.lock").read_text().split():
        name, version = line.split("==")
        assert name and version and "+" not in version
    assert "torch==2.13.0" in (ROOT / "envs" / "requirements.lock").read_text().split()
