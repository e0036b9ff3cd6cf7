"""What an edit reruns: every numbered row of the table of surprises that users of such pipelines met, and its cure.

One tiny study is made once; each test edits the copy, asks Snakemake for a dry run, and takes the edit back.
"""

import json
import os
import shutil

import pytest

FINAL = {"report", "all"}
AFTER = {"runs", "claims", "figures", "catalog", "provenance"} | FINAL
FORECAST = {f"forecast_run:{model},{system}" for system in ("vdp", "ou") for model in ("s4d", "s6")}
BASELINES = {f"forecast_run:{model},{system}" for system in ("vdp", "ou") for model in ("persistence", "ridge", "mlp")}
FORECAST_AFTER = {"forecast", "gap", "alignment", "prediction"} | AFTER
SEARCH = {f"forecast_search_run:{model}" for model in ("s4d", "s6", "mlp")} | {"forecast_search"}
CROSSED = {"crossed_run:s4d,vdp", "crossed_run:ridge,vdp", "crossed"}


def jobs_of(found: set[str], rule: str) -> set[str]:
    return {job for job in found if job.split(":")[0] == rule}


def test_nothing_is_left_to_do(study):
    assert study.planned() == set()
    assert "Nothing to be done" in study.study().stderr


@pytest.mark.parametrize(
    "old, new",
    [
        pytest.param(
            "n: {train: 24, validation: 16, test: 1500}",
            "n: {train: 16, validation: 24, test: 1500}",
            id="row 1: values swapped",
        ),
        pytest.param(
            "n: {train: 24, validation: 16, test: 1500}",
            "n: {train: 16, validation: 16, test: 1500}",
            id="row 2: a value already present",
        ),
    ],
)
def test_values_that_swap_or_repeat_rerun_their_readers(study, old, new):
    with study.edit("config/tiny.yaml", old, new):
        found = study.planned()
    assert jobs_of(found, "systems_simulate") == {"systems_simulate:vdp", "systems_simulate:ou"}
    assert FORECAST | BASELINES | FORECAST_AFTER <= found
    assert not jobs_of(found, "refinement_run") | jobs_of(found, "tasks_make") | jobs_of(found, "convergence_run")


def test_row_3_a_renamed_param_reruns(study):
    with study.edit("scripts/continuity/study.py", '"data_seed": study', '"seed_of_data": study'):
        found = study.planned()
    assert found == {"refinement_run:dho,s4d", "refinement_run:dho,s6", "refinement", "diagnosis"} | AFTER


def test_row_4_a_path_in_the_configuration_is_text_and_reruns(study, tmp_path):
    rows = "\n".join(f"s{k},{t},{(k + t) % 7},{k % 2}" for k in range(40) for t in range(60))
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for file in files:
        file.write_text("sequence,time,value,label\n" + rows + "\n")
    entry = "{{name: mine, path: {}, sequence: sequence, time: time, values: [value], label: label}}"
    old = "  list:\n    - {name: listops"
    flags = ("results/tiny/data/tasks/mine.parquet",)
    with study.edit("config/tiny.yaml", old, f"  list:\n    - {entry.format(files[0])}\n    - {{name: listops"):
        made = study.snakemake(*flags)
        assert made.returncode == 0, made.stderr
        assert study.planned(*flags) == set()
    with study.edit("config/tiny.yaml", old, f"  list:\n    - {entry.format(files[1])}\n    - {{name: listops"):
        assert study.planned(*flags) == {"tasks_make:mine"}


def test_row_5_a_list_of_outputs_is_part_of_the_identity(study):
    with study.edit("config/tiny.yaml", "  models: [s4d, s6]", "  models: [s4d]"):
        found = study.planned()
    assert found == FORECAST_AFTER | {"forecast_search"}


def test_row_6_a_value_that_a_script_reads_reruns(study):
    with study.edit("config/tiny.yaml", "  permutations: 100", "  permutations: 200"):
        assert study.planned() == {"alignment", "prediction"} | AFTER - {"runs"}


def test_row_7_an_imported_module_reruns_its_users_only(study):
    with study.edit("scripts/continuity/mixtures.py", "seed + 101", "seed + 102"):
        found = study.planned()
    assert (
        found == {"mixtures_run:vdp", "mixtures_run:ou", "mixtures"} | FORECAST | BASELINES | FORECAST_AFTER | SEARCH | CROSSED
    )


def test_one_line_of_the_s6_layer_reruns_s6_and_what_follows(study):
    with study.edit("scripts/continuity/layers/s6.py", "import torch\n", "import torch\n\nEDITED = 1\n"):
        found = study.planned()
    runs = {job for job in found if ":" in job}
    expected = {job for job in FORECAST if "s6" in job} | {"refinement_run:dho,s6", "benchmark_run:listops,s6"}
    expected |= {"forecast_search_run:s6"}
    expected |= {"stability_run:vic_elec,mamba", "stability_run:vic_elec,persistence"}  # whose penalty attaches to S6
    assert runs == expected | {"latents_encode:listops,s6", "score_run:listops,s6"}
    follow = {"refinement", "diagnosis", "benchmark", "score", "similarity", "forecast", "forecast_search", "gap", "alignment"}
    follow |= {"prediction"}
    follow |= {"stability", "robustness", "score_sensitivity"}
    assert found - runs == follow | AFTER


def test_row_8_a_helper_that_changes_what_a_job_does_reruns(study):
    with study.edit(
        "scripts/continuity/study.py",
        'return keys | study.config["score"]',
        'return keys | study.config["score"] | {"seed": 5}',
    ):
        found = study.planned()
    assert jobs_of(found, "score_run") == {f"score_run:listops,{encoder}" for encoder in ("raw", "random", "s4d", "s6")}


def test_row_9_a_pin_reruns_the_stages_that_import_it(study):
    with study.edit("envs/requirements.lock", "torch==2.13.0", "torch==2.13.1"):
        found = study.planned()
    assert FORECAST <= found and not jobs_of(found, "systems_simulate")
    with study.edit("envs/requirements.lock", "seaborn==", "seaborn==9."):
        assert study.planned() == {"figures"} | FINAL


def test_row_10_copied_results_are_judged_by_what_they_say(study, tmp_path):
    """No `.snakemake` came along: cfg and code in the files decide."""
    hidden = study.folder / ".snakemake"
    shutil.move(hidden, tmp_path / "kept")
    try:
        assert study.planned() == set()
        shutil.rmtree(hidden, ignore_errors=True)
        with study.edit("config/tiny.yaml", "  scales: [1, 8]", "  scales: [1, 4]"):
            found = study.planned()
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        shutil.move(tmp_path / "kept", hidden)
    assert found == {"convergence_run:s4", "convergence_run:s6", "convergence"} | AFTER


@pytest.mark.parametrize(
    "name, old, new",
    [
        pytest.param(
            "config/tiny.yaml", "{train: 24, validation: 16, test", "{validation: 16, train: 24, test", id="row 11: key order"
        ),
        pytest.param("config/tiny.yaml", "etas: [0, 1]", "etas: [0.0, 1.0]", id="another spelling of a number"),
        pytest.param("rules/forecast.smk", "{LOGGED}", " {LOGGED}", id="row 13: white space in a shell line"),
        pytest.param("scripts/continuity/mixtures.py", "CHANNELS = 16", "# a comment\nCHANNELS = 16", id="row 15: a comment"),
        pytest.param("scripts/continuity/mixtures.py", '"""', '"""Said otherwise. ', id="row 15: a docstring"),
        pytest.param("envs/requirements.lock", "pytest-benchmark==", "pytest-benchmark==9.", id="a pin that no stage imports"),
    ],
)
def test_what_changes_nothing_reruns_nothing(study, name, old, new):
    with study.edit(name, old, new):
        assert study.planned() == set()


def test_row_12_the_hash_seed_changes_nothing(study):
    assert study.planned(PYTHONHASHSEED="1") == study.planned(PYTHONHASHSEED="2") == set()


def test_row_14_touching_reruns_nothing(study):
    for name in ("scripts/forecast.py", "scripts/continuity/mixtures.py", "results/tiny/data/systems/vdp.parquet"):
        os.utime(study.folder / name)
    assert study.planned() == set()


@pytest.mark.parametrize("name, large", [("tables/mixtures.parquet", False), ("data/systems/vdp.parquet", True)])
def test_row_16_a_rewrite_with_the_same_bytes_reruns_nothing(study, name, large):
    path = study.folder / "results/tiny" / name
    assert (path.stat().st_size > 1_000_000) == large
    path.write_bytes(path.read_bytes())
    assert study.planned() == set()


def test_another_seed_trains_without_searching_again_and_a_new_rate_searches_for_all(study):
    with study.edit("config/tiny.yaml", "  seeds: [0, 1]", "  seeds: [0, 1, 2]"):
        assert not jobs_of(study.planned(), "forecast_search_run")
    with study.edit("config/tiny.yaml", "rates: [0.01, 0.02]", "rates: [0.01, 0.02, 0.04]"):
        found = study.planned()
    assert found == SEARCH | FORECAST | CROSSED - {"crossed_run:ridge,vdp"} | FORECAST_AFTER | {
        "forecast_run:mlp,vdp",
        "forecast_run:mlp,ou",
    }


def test_row_17_one_option_of_one_model_reruns_that_model(study):
    with study.edit("config/config.yaml", "layer: s4d, options: {d_state: 16}", "layer: s4d, options: {d_state: 8}"):
        found = study.planned()
    assert {job for job in found if job.startswith("forecast_run")} == {job for job in FORECAST if "s4d" in job}
    assert not any("s6" in job for job in found if ":" in job)


def rows(study, sql):
    from continuity import catalog

    return catalog.query(sql, study.folder / "results/tiny/tables").to_pylist()


def test_row_18_a_new_seed_trains_that_seed_only_and_a_removed_one_is_forgotten(study):
    before = rows(study, "SELECT run, started FROM runs WHERE \"table\" = 'forecast'")
    sums = rows(study, "SELECT sum(rmse) AS total FROM forecast WHERE seed < 2 AND model = 's4d'")
    with study.edit("config/tiny.yaml", "  seeds: [0, 1]", "  seeds: [0, 1, 2]"):
        done = study.snakemake("runs", "gap")
        assert done.returncode == 0, done.stdout + done.stderr
        now = rows(study, "SELECT run, cfg, started FROM runs WHERE \"table\" = 'forecast'")
        for row in now:
            if json.loads(row["cfg"]).get("seed") == 2:
                assert row["run"] not in {old["run"] for old in before}
        assert sorted({row["seed"] for row in rows(study, "SELECT seed FROM forecast")}) == [0, 1, 2]
        kept = [row for row in now if json.loads(row["cfg"]).get("seed") != 2]
        assert kept and all(row["started"] <= max(old["started"] for old in before) for row in kept)
        assert rows(study, "SELECT sum(rmse) AS total FROM forecast WHERE seed < 2 AND model = 's4d'") == sums
    done = study.snakemake()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted({row["seed"] for row in rows(study, "SELECT seed FROM forecast")}) == [0, 1]
    assert study.planned() == set()


@pytest.mark.parametrize(
    "name, old, new, expected",
    [
        pytest.param(
            "scripts/continuity/figures.py", "import ", "EDITED = 1\nimport ", {"figures"} | FINAL, id="row 19: a colour"
        ),
        pytest.param(
            "scripts/continuity/sql/gap.sql",
            "SELECT",
            "SELECT ",
            {"gap", "claims", "figures", "catalog", "provenance"} | FINAL,
            id="row 19: an aggregation",
        ),
        pytest.param(
            "scripts/continuity/tables.toml", "largest lag T", "the largest lag T", {"catalog"} | FINAL, id="a column's meaning"
        ),
    ],
)
def test_row_19_presentation_reruns_presentation(study, name, old, new, expected):
    with study.edit(name, old, new):
        assert study.planned() == expected


def test_editing_a_module_reruns_exactly_the_stages_that_import_it(study):
    """The expectation comes from Python itself: each script is imported, and its loaded files are read off."""
    import subprocess
    import sys

    scripts = {path.stem for path in (study.folder / "scripts").glob("*.py")} - {"study"}
    loaded = {}
    for script in scripts:
        code = (
            "import sys, runpy; sys.path.insert(0, 'scripts')\n"
            f"runpy.run_path('scripts/{script}.py', run_name='other')\n"
            "print('\\n'.join(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=study.folder, capture_output=True, text=True, check=True)
        loaded[script] = {line for line in done.stdout.split("\n") if "/scripts/continuity/" in line}
    from continuity import identity
    from continuity.study import RULES

    for script, files in loaded.items():
        folder = str(study.folder / "scripts")
        names = {file.removeprefix(folder) for file in files}
        closure = {
            str(path).removeprefix(str(identity.PACKAGE.parent))
            for path in identity.closure(identity.PACKAGE.parent / f"{script}.py")
        }
        assert names <= closure, f"{script} loads {names - closure}, which its identity does not hold"
    assert {rule.script.removesuffix(".py") for rule in RULES.values()} == scripts
