"""Trajectories on disk: one row a trajectory, its states flattened, channel names and step in the file's metadata."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from continuity import tables
from continuity.systems import Trajectories

SPLITS = ("train", "validation", "test")
"""Split k of a data seed is simulated with seed + k, so that splits share no trajectory."""


def write(splits: Mapping[str, Trajectories], path: Path | str, metadata: Mapping[str, str] | None = None) -> None:
    """Write {split: Trajectories} as columns split, index, parameters (p,), states (L * d,) float32."""
    parts = []
    for split, found in splits.items():
        n, length, channels = found.states.shape
        flat = pa.array(found.states.astype(np.float32).reshape(-1))
        parameters = pa.array(found.parameters.reshape(-1))
        columns = {
            "split": pa.array([split] * n, pa.string()),
            "index": pa.array(range(n), pa.int32()),
            "parameters": pa.FixedSizeListArray.from_arrays(parameters, found.parameters.shape[1]),
            "states": pa.FixedSizeListArray.from_arrays(flat, length * channels),
        }
        parts.append(pa.table(columns))
    about = {
        "channels": ",".join(found.channel_names),
        "parameters": ",".join(found.parameter_names),
        "step": repr(found.step),
    }
    tables.write_table(pa.concat_tables(parts), path, about | dict(metadata or {}))


def read(path: Path | str, splits: Iterable[str] = SPLITS) -> dict[str, np.ndarray]:
    """States (n, L, d) float32 of the named splits."""
    table = tables.read(path)
    try:
        channels = len(table.schema.metadata[b"channels"].split(b","))
        columns = table.select(["split", "states"])
    except (KeyError, TypeError):
        raise tables.TableError(f"{path}: holds no trajectories; delete it and run the study again") from None
    found = {}
    for split in splits:
        chosen = columns.filter(pa.compute.equal(columns["split"], split))["states"].combine_chunks()
        flat = chosen.flatten().to_numpy(zero_copy_only=False)
        found[split] = flat.reshape(len(chosen), -1, channels)
    return found
