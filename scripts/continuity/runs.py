"""Finished runs: each kept in its own folder under its own identity, so that a job repeats only what is missing or changed."""

import contextlib
import datetime
import hashlib
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from continuity import tables
from continuity.identity import canonical, key, spell


def digest(paths: Iterable[Path | str]) -> str:
    """Hash of the bytes of input files, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


def folder(base: Path | str, keys: dict) -> Path:
    """`base`/name=value/… with every number in its one spelling."""
    parts = [f"{name}={value if isinstance(value, str) else spell(value)}" for name, value in keys.items()]
    return Path(base).joinpath(*parts)


def machine(device: str = "cpu") -> dict:
    """Where a run happens: device, threads, versions and host, as the runs table spells them."""
    from importlib import metadata

    torch = sys.modules.get("torch")  # a stage that does not use torch does not wait for it
    versions = {"python": platform.python_version()}
    for name in ("torch", "numpy", "numba", "pyarrow"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    if device == "cuda":
        kind = "deterministic" if torch.are_deterministic_algorithms_enabled() else "not deterministic"
        name = f"{torch.cuda.get_device_name()}, {kind}"
    else:
        name = platform.processor() or platform.machine()
    return {
        "device": f"{device}: {name}",
        "threads": torch.get_num_threads() if torch else None,
        "versions": canonical(versions),
        "host": socket.gethostname(),
    }


@dataclass
class Meter:
    """What training in this process has read, and how busy its GPU was seen."""

    sequences: int = 0
    seconds: float = 0.0
    busy: list = field(default_factory=list)

    def clear(self) -> None:
        self.sequences, self.seconds, self.busy = 0, 0.0, []

    def epoch(self, sequences: int, seconds: float, device: str) -> None:
        """`sequences` were trained on in `seconds`."""
        self.sequences += sequences
        self.seconds += seconds
        if device == "cuda":
            with contextlib.suppress(ModuleNotFoundError, RuntimeError):  # NVIDIA's library need not be there
                self.busy.append(sys.modules["torch"].cuda.utilization() / 100)

    def line(self, device: str, wall: float, cpu: float) -> dict:
        """Columns of the runs table; wall, cpu: seconds since it was cleared."""
        utilisation = cpu / wall if device == "cpu" else (sum(self.busy) / len(self.busy) if self.busy else None)
        return {"sequences_per_s": self.sequences / self.seconds if self.seconds else None, "utilisation": utilisation}


METER = Meter()


def timed(table: str, run: str, cfg: str, code: str, inputs: str, device: str, work: Callable) -> tuple[list[dict], dict]:
    """Do `work()` → (rows, backend) and describe it: (rows, its line of the runs table)."""
    METER.clear()
    began, cpu, started = time.perf_counter(), time.process_time(), datetime.datetime.now(datetime.UTC)
    rows, backend = work()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    line = {
        "table": table,
        "key": key(cfg, code + inputs),
        "run": run,
        "seconds": round(wall, 3),
        "backend": backend,
        "started": started.isoformat(timespec="seconds"),
        "cfg": cfg,
        "code": code,
    }
    return rows, line | machine(device) | METER.line(device, wall, cpu)


@dataclass
class Ledger:
    """The runs of one job: their rows by result table, and one line of time and place for each.

    base: the job's folder · table: result table the runs belong to · code and inputs: identity shared by all its runs ·
    beside: further files that a finished run has in its folder.
    """

    base: Path
    table: str
    code: str
    inputs: str = ""
    device: str = "cpu"
    beside: tuple[str, ...] = ()
    rows: list = field(default_factory=list)
    sidecar: list = field(default_factory=list)

    def run(self, keys: dict, cfg: dict, work: Callable[[Path], tuple[list[dict], str]], inputs: str | None = None) -> bool:
        """Rows of the run `keys` with settings `cfg`: read if finished, else `work(checkpoint)` → (rows, backend).

        Returns whether it worked. inputs: identity of what this run reads, where that is less than the job does.
        `checkpoint` is a path that carries the run's identity, so that no other run resumes it.
        """
        place, text = folder(self.base, keys), canonical(cfg)
        inputs = self.inputs if inputs is None else inputs
        kept, times = place / "run.parquet", place / "times.parquet"
        wanted = {"cfg": text, "code": self.code, "inputs": inputs}
        stamps = [tables.metadata(path).get(part) == value for path in (kept, times) for part, value in wanted.items()]
        worked = not all(stamps) or not all((place / name).exists() for name in self.beside)
        if worked:
            place.mkdir(parents=True, exist_ok=True)
            checkpoint = place / f"checkpoint-{key(text, self.code + inputs)}.pt"
            run = " ".join(f"{part}={value}" for part, value in keys.items())
            rows, line = timed(self.table, run, text, self.code, inputs, self.device, lambda: work(checkpoint))
            tables.write("runs", [line], times, wanted)
            tables.write(self.table, rows, kept, wanted)
            for old in place.glob("checkpoint-*.pt"):
                old.unlink()
        self.rows += tables.read(kept).to_pylist()
        self.sidecar += tables.read(times).to_pylist()
        return worked
