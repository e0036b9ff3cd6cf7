"""Identities: equal for equal runs, different for different ones."""

import ast
import json

import pytest
from continuity import identity


@pytest.mark.parametrize("values", [(0, 0.0, -0.0), (1, 1.0), (0.1, 1e-1), (1e6, 1000000)])
def test_a_number_has_one_spelling(values):
    assert len({identity.spell(value) for value in values}) == 1
    assert len({identity.canonical([value]) for value in values}) == 1


def test_distinct_numbers_keep_distinct_spellings():
    values = [0, 1, 0.1, 0.25, 1e-8, 1e300, -1]
    assert len({identity.spell(value) for value in values}) == len(values)


def test_canonical_json_ignores_the_order_of_keys_and_reads_back():
    first, second = {"a": 1, "b": {"c": [1.5, None, True], "d": "x"}}, {"b": {"d": "x", "c": [1.5, None, True]}, "a": 1.0}
    assert identity.canonical(first) == identity.canonical(second)
    assert json.loads(identity.canonical(first)) == first


def test_a_set_has_no_canonical_form():
    with pytest.raises(TypeError, match="set"):
        identity.canonical({"names": {"a", "b"}})


def outline(source: str) -> str:
    return identity._outline(ast.parse(source))


@pytest.mark.parametrize(
    "other",
    [
        'def f(x):\n    """Doc."""\n    return x + 1\n',
        "# a comment\ndef f(x):\n\n    return (x +\n        1)\n",
        '"""Module doc."""\ndef f(x): return x + 1\n',
    ],
)
def test_comments_docstrings_and_layout_are_not_code(other):
    assert outline(other) == outline("def f(x):\n    return x + 1\n")


@pytest.mark.parametrize(
    "other",
    ["def f(x):\n    return x + 2\n", "def f(y):\n    return x + 1\n", "def f(x):\n    'a'.upper()\n    return x + 1\n"],
)
def test_what_code_does_is_code(other):
    assert outline(other) != outline("def f(x):\n    return x + 1\n")


def test_true_and_one_are_different_code():
    assert outline("x = True") != outline("x = 1")
    assert outline("x = None") != outline("x = ()")


def library(tmp_path, monkeypatch, files: dict):
    package = tmp_path / "scripts" / "continuity"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(identity, "PACKAGE", package)
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    for function in (identity._imports, identity._local, identity.closure, identity._parsed, identity.tree_hash):
        function.cache_clear()
    monkeypatch.setattr(identity.module_file, "__defaults__", (package.parent,))
    return package


def test_the_closure_holds_every_import_and_nothing_else(tmp_path, monkeypatch):
    package = library(
        tmp_path,
        monkeypatch,
        {
            "__init__.py": "",
            "a.py": "from continuity import b\ndef f():\n    import continuity.sub.c\n",
            "b.py": "import os\n",
            "sub/__init__.py": "X_MODULES = {'d': 'continuity.sub.d:D'}\n",
            "sub/c.py": "from .e import thing\n",
            "sub/d.py": "",
            "sub/e.py": "thing = 1\n",
        },
    )
    found = {path.relative_to(package).as_posix() for path in identity.closure(package / "a.py")}
    assert found == {"__init__.py", "a.py", "b.py", "sub/__init__.py", "sub/c.py", "sub/e.py"}


def test_an_entry_of_a_registry_is_not_code_of_its_users(tmp_path):
    one = outline("LAYER_MODULES = {'a': 'x:A'}\nvalue = 1\n")
    assert one == outline("LAYER_MODULES = {'a': 'x:A', 'b': 'x:B'}\nvalue = 1\n")
    assert one != outline("LAYER_MODULES = {'a': 'x:A'}\nvalue = 2\n")


def test_the_hash_follows_the_pins_that_the_code_imports(tmp_path, monkeypatch):
    package = library(tmp_path, monkeypatch, {"__init__.py": "", "a.py": "import torch\nfrom yaml import load\n"})
    monkeypatch.setattr(identity, "pins", lambda: {"torch": "1", "pyyaml": "2", "duckdb": "3"})
    assert identity.versions([package / "a.py"]) == {"torch": "1", "pyyaml": "2"}


def test_the_core_of_the_library_needs_torch_numpy_and_pyarrow_alone():
    """Floors 1 to 4 import without snakemake, duckdb, datasets, pandas, seaborn and yaml."""
    import subprocess
    import sys

    blocked = ["snakemake", "duckdb", "datasets", "pandas", "seaborn", "yaml", "jsonschema", "scipy", "numba", "mlxtend"]
    code = (
        f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
        "import continuity.training, continuity.forecast, continuity.refinement, continuity.metric, continuity.convergence\n"
        "import continuity.tables, continuity.runs\nfrom continuity.layers import LAYERS\n"
        "[LAYERS[name] for name in ('s4d', 's6', 'transformer')]\nprint('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "fine", done.stderr
