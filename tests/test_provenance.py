"""Where a number comes from: from every file to its job, settings, code and versions, and from every row to its run."""

import json

import pytest
from continuity import catalog, identity, provenance, tables
from continuity.study import RULES, TIMED, Study

JOINS = {
    "tasks": ("task",),
    "benchmark": ("task", "model", "seed"),
    "score": ("task", "encoder"),
    "similarity": ("task", "encoder"),
    "mixtures": ("system", "eta", "construction"),
    "forecast": ("system", "model", "eta", "construction", "horizon", "readout", "seed"),
    "forecast_search": ("model", "system", "eta", "lr"),
    "crossed": ("system", "model", "eta", "eta_target", "seed"),
    "convergence": ("model",),
    "refinement": ("system", "model", "method", "seed"),
    "curriculum": ("task", "model", "plan", "seed"),
    "stability": ("dataset", "host", "horizon", "storage", "weight", "beta", "router_weight", "seed"),
    "robustness": ("dataset", "host", "horizon", "storage", "weight", "beta", "router_weight", "seed"),
}
"""Columns by which the rows of a table find their run."""
BESIDE = ("similarity", "score_sensitivity", "diagnosis", "curriculum_times", "robustness")
"""Tables that runs of another table write too; one action stands for all that a job writes."""
RUN_OF = {"similarity": "score", "robustness": "stability"}


def settled(study, results=None):
    """The finished study as an object, or the same study with another, empty results folder."""
    kept = json.loads((study.folder / "results/tiny/config.json").read_text())["config"]
    return Study(kept | {"results": str(results or study.folder / "results")})


@pytest.fixture(scope="module")
def crate(study):
    return json.loads((study.folder / "results/tiny/provenance.json").read_text())


@pytest.fixture(scope="module")
def entities(crate):
    found = {entity["@id"]: entity for entity in crate["@graph"]}
    assert len(found) == len(crate["@graph"]), "every entity has an @id of its own"
    return found


def identifiers(value):
    """Every @id that an entity refers to."""
    if isinstance(value, dict):
        yield from ([value["@id"]] if set(value) == {"@id"} else (one for part in value.values() for one in identifiers(part)))
    elif isinstance(value, list):
        yield from (one for part in value for one in identifiers(part))


def test_the_crate_says_what_it_is(crate, entities):
    """What RO-Crate 1.1 and Process Run Crate 0.5 ask of their root and their actions."""
    assert crate["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    head, root = entities["ro-crate-metadata.json"], entities["./"]
    assert head["about"] == {"@id": "./"} and head["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert root["@type"] == "Dataset" and root["conformsTo"] == {"@id": "https://w3id.org/ro/wfrun/process/0.5"}
    assert {"name", "description", "license", "hasPart", "mentions"} <= set(root)
    actions = [entity for entity in entities.values() if entity["@type"] == "CreateAction"]
    assert {action["@id"] for action in actions} == set(identifiers(root["mentions"]))
    for action in actions:
        assert entities[action["instrument"]["@id"]]["@type"] == "SoftwareApplication"
        assert all(entities[one]["@type"] == "File" for one in identifiers(action["result"]))


def test_nothing_is_referred_to_that_is_not_there(entities):
    outside = {"https://w3id.org/ro/crate/1.1"}
    for entity in entities.values():
        for identifier in identifiers({key: value for key, value in entity.items() if key != "@id"}):
            assert identifier in entities or identifier in outside, identifier


def test_every_file_of_the_study_has_the_action_that_made_it(study, entities):
    root = study.folder / "results/tiny"
    made = {
        result["@id"]: entity
        for entity in entities.values()
        if entity["@type"] == "CreateAction"
        for result in entity["result"]
    }
    there = {path.relative_to(root).as_posix() for path in (root / "tables").glob("*.parquet")}
    there |= {path.relative_to(root).as_posix() for path in (root / "tables").glob("**/rows.parquet")}
    there -= {name for name in there if name.count("/") > 1 and name.split("/")[1] in BESIDE}
    assert there <= set(made)
    for output in there:
        found = tables.metadata(root / output)
        values = {entities[one]["name"]: entities[one] for one in identifiers(made[output]["object"]) if one.startswith("#")}
        assert values["cfg"]["value"] == found["cfg"] and values["code"]["value"] == found["code"]


def test_from_a_table_one_walks_back_to_the_data(entities):
    """gap ← forecast ← its runs ← trajectories, by objects and results alone."""
    made = {one["@id"]: entity for entity in entities.values() if entity["@type"] == "CreateAction" for one in entity["result"]}
    seen, waiting = set(), ["tables/gap.parquet"]
    while waiting:
        output = waiting.pop()
        seen.add(output)
        waiting += [one for one in identifiers(made[output]["object"]) if one in made]
    assert {"data/systems/vdp.parquet", "data/systems/ou.parquet", "tables/forecast/model=s4d/system=vdp/rows.parquet"} <= seen
    assert not any("tasks" in output for output in seen)


def test_a_script_names_the_pinned_versions_that_it_runs_with(entities):
    required = {
        entities[one]["name"]: entities[one]["softwareVersion"]
        for one in identifiers(entities["scripts/forecast.py"]["softwareRequirements"])
    }
    assert required["torch"] == identity.pins()["torch"] and required["snakemake"] == identity.pins()["snakemake"]
    scores = {entities[one]["name"] for one in identifiers(entities["scripts/compact.py"]["softwareRequirements"])}
    assert "torch" not in scores


def test_two_tellings_of_one_study_are_equal(study):
    """No time, no host: what differs between two equal studies is in the table of runs alone."""
    told = [provenance.crate(settled(study)) for _ in range(2)]
    assert told[0] == told[1]
    text = json.dumps(told[0])
    assert "started" not in text and "seconds" not in {entity.get("name") for entity in told[0]["@graph"]}


def test_files_that_do_not_say_what_made_them_are_left_out(tmp_path, study):
    empty = provenance.crate(settled(study, tmp_path))
    assert not [entity for entity in empty["@graph"] if entity["@type"] == "CreateAction"]


@pytest.mark.parametrize("table", sorted(JOINS))
def test_every_row_finds_the_one_run_that_made_it(study, table):
    """Settings, code, versions, device, seed and duration of any row, by one join."""
    path = study.folder / f"results/tiny/tables/{table}.parquet"
    if not tables.read(path).num_rows:
        assert table in ("forecast_search", "crossed"), f"{table} is empty"
        return
    name = {"host": "model"}
    on = " AND ".join(f"p.{name.get(column, column)} = t.{column}" for column in JOINS[table])
    sql = (
        f"SELECT t.{JOINS[table][0]}, count(p.key) AS n, any_value(p.cfg) AS cfg, any_value(p.code) AS code, "
        f"any_value(p.versions) AS versions, any_value(p.device) AS device, any_value(p.seconds) AS seconds "
        f'FROM (SELECT *, row_number() OVER () AS id FROM "{table}") AS t LEFT JOIN provenance AS p '
        f"ON p.\"table\" = '{RUN_OF.get(table, table)}' AND {on} GROUP BY t.id, t.{JOINS[table][0]}"
    )
    rows = catalog.query(sql, study.folder / "results/tiny/tables").to_pylist()
    assert {row["n"] for row in rows} == {1}
    assert all(json.loads(row["cfg"]) and row["code"] and json.loads(row["versions"])["python"] for row in rows)
    assert all(row["device"] and row["seconds"] is not None for row in rows)


def test_a_run_is_found_by_every_stage_that_leaves_times(study):
    rows = catalog.query('SELECT DISTINCT "table" FROM provenance', study.folder / "results/tiny/tables").to_pylist()
    stages = {RULES[rule].output.split("/")[1] for rule in TIMED if settled(study).jobs(rule)}
    assert {row["table"] for row in rows} == stages
