"""Identity of a run: the settings it reads, spelled once, and the code it runs.

`cfg` is canonical JSON. `code` hashes the syntax trees of an import closure (docstrings, comments and layout left out) and the
pinned versions of the third-party packages that closure imports. Standard library only: the Snakefile reads this module.
"""

import ast
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parents[1]
LOCK = ROOT / "envs" / "requirements.lock"
# Import names that differ from the name under which the package is pinned.
DISTRIBUTIONS = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow"}


def spell(number: float) -> str:
    """A number as text, one way only: 0, 0.0 and -0.0 are '0', 1e-1 is '0.1'."""
    if isinstance(number, float) and math.isfinite(number) and number.is_integer():
        number = int(number)
    return repr(number)


def plain(value):
    """Numbers, text, lists and mappings with every number in its one form and keys in order; anything else is a TypeError."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, float) and math.isfinite(value) and value.is_integer() else value
    if isinstance(value, dict):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} {value!r} has no canonical form; use numbers, text, lists and mappings")


def canonical(value) -> str:
    """Canonical JSON: equal settings give equal text, whatever their key order or spelling of numbers."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)


def key(cfg: str, code: str) -> str:
    """Sixteen hexadecimal digits that name a run by its settings and code."""
    return hashlib.sha256(f"{cfg}\n{code}".encode()).hexdigest()[:16]


def _docstring(body: list) -> bool:
    return bool(body) and isinstance(body[0], ast.Expr) and isinstance(getattr(body[0].value, "value", None), str)


def _registry(node: ast.AST) -> bool:
    """A table of file names by entry (`LAYER_MODULES = {...}`): the entry that a run uses joins its identity as a file."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id.endswith("_MODULES") for target in targets)


def _outline(node) -> str:
    """A syntax tree as text that is equal on every Python version: no positions, empty fields, type_params or docstrings."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list) and _docstring(value):
                value = value[1:]
            if name in ("ctx", "type_comment", "type_params", "kind") or value is None or value == []:
                continue
            fields.append(f"{name}={_outline(value)}")
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(_outline(item) for item in node if not _registry(item))}]"
    return repr(node)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def tree_hash(path: Path) -> str:
    """Hash of what a Python file does; a comment, a docstring or layout does not change it."""
    return hashlib.sha256(_outline(_parsed(path)).encode()).hexdigest()


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    """Dotted names that a file imports anywhere in it; `from a import b` gives both a and a.b."""
    names = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = path.parent if node.level == 1 else path.parents[node.level - 1]
                if not package.is_relative_to(PACKAGE):
                    continue
                base = ".".join(["continuity", *package.relative_to(PACKAGE).parts, *filter(None, [base])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(names)


def module_file(name: str, base: Path = PACKAGE.parent) -> Path | None:
    """The file of dotted module `name` under `base`, or None where there is none."""
    path = base.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@functools.cache
def _local(path: Path) -> frozenset[Path]:
    """Files of the library that a file imports directly, the packages they lie in included."""
    found = set()
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] == "continuity":
            found |= {module_file(".".join(parts[:depth])) for depth in range(1, len(parts) + 1)}
    return frozenset(found - {None})


@functools.cache
def closure(*sources: Path) -> tuple[Path, ...]:
    """`sources` and every library file that they import, directly or not, in a fixed order."""
    found, waiting = set(), list(sources)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_local(path))
    return tuple(sorted(found))


@functools.cache
def pins() -> dict[str, str]:
    """Pinned versions by distribution name, from envs/requirements.lock."""
    if not LOCK.is_file():
        return {}
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", LOCK.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def versions(files: Iterable[Path]) -> dict[str, str]:
    """Pinned versions of the third-party packages that `files` import."""
    tops = {name.split(".")[0] for path in files for name in _imports(path)}
    names = {re.sub(r"[-_.]+", "-", DISTRIBUTIONS.get(top, top)).lower() for top in tops}
    return {name: pins()[name] for name in sorted(names) if name in pins()}


@functools.cache
def code_hash(sources: tuple[Path, ...], data: tuple[Path, ...] = (), extra: str = "") -> str:
    """Hash over the import closure of `sources`, the bytes of `data` files, pinned versions and `extra` text."""
    files = closure(*sources)
    digest = hashlib.sha256(extra.encode())
    for path in files:
        digest.update(f"{_place(path)} {tree_hash(path)}\n".encode())
    for path in data:
        digest.update(f"{_place(path)} ".encode() + path.read_bytes())
    digest.update(canonical(versions(files)).encode())
    return digest.hexdigest()[:16]


def _place(path: Path) -> str:
    """A file's name in a hash: relative to the project, so that a moved checkout keeps its identities."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def literal(path: Path, name: str) -> dict:
    """The literal value assigned to `name` at the top of a Python file, read without importing it."""
    for node in _parsed(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.literal_eval(node.value)
    raise KeyError(f"{path} assigns no {name}")
