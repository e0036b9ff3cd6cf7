"""Sequences as points of a latent space, streamed to Parquet: raw values or one-hot symbols, a random or a trained encoder."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from continuity import tables
from continuity.tasks.sequences import Sequences, Task


def raw(task: Task) -> Callable[[Sequences], list[np.ndarray]]:
    """The values themselves (L, d), or one-hot symbols (L, vocab)."""
    if not task.vocab:
        return lambda part: np.split(part.values, part.offsets[1:-1])
    symbols = np.eye(len(task.vocab), dtype=np.float32)
    return lambda part: np.split(symbols[part.values], part.offsets[1:-1])


def embedding(model) -> Callable[[Sequences], list[np.ndarray]]:
    """The output (L, d_model) of the encoder of `model`, a `SequenceModel`, before any layer."""
    import torch

    @torch.no_grad()
    def encode(part: Sequences) -> list[np.ndarray]:
        steps = torch.from_numpy(part.values)
        steps = steps.long() if part.tokens else steps.float()
        return np.split(model.encode(steps[None])[0].numpy(), part.offsets[1:-1])

    return encode


def states(model, depth: int) -> Callable[[Sequences], list[np.ndarray]]:
    """The states (L, d_model) after layer `depth` of `model`, a `SequenceModel`, from 1 at the input; a sequence at a time.

    ValueError for a depth that the model has not.
    """
    import torch

    if not 1 <= depth <= len(model.blocks):
        raise ValueError(f"encoder: there is no layer {depth}: the model has {len(model.blocks)}")
    model.eval()

    @torch.no_grad()
    def encode(part: Sequences) -> list[np.ndarray]:
        found = []
        for i in range(len(part)):
            steps = torch.from_numpy(part[i])[None]
            h = model.encode(steps.long() if part.tokens else steps.float())
            for block in model.blocks[:depth]:
                h = block(h, 1.0, None)
            found.append(h[0].numpy())
        return found

    return encode


def write(
    task: Task, split: str, sequences: int, encode: Callable, path: Path | str, metadata: Mapping[str, str], rows: int = 32
) -> None:
    """Latents of the first `sequences` of a split: columns index, length, latents (L * d, float32), d in the metadata."""
    chosen = task.splits[split].take(range(min(sequences, len(task.splits[split]))))
    fields = [("index", pa.int32()), ("length", pa.int32()), ("latents", pa.list_(pa.float32()))]
    with tables.atomic(path) as temporary:
        writer = None
        for first in range(0, len(chosen), rows):
            found = encode(chosen.take(range(first, min(first + rows, len(chosen)))))
            if writer is None:
                about = {"channels": str(found[0].shape[1]), "task": task.name} | dict(metadata)
                schema = pa.schema(fields, metadata={key.encode(): value.encode() for key, value in about.items()})
                writer = pq.ParquetWriter(temporary, schema, compression="zstd")
            columns = [
                pa.array(range(first, first + len(found)), pa.int32()),
                pa.array([len(sequence) for sequence in found], pa.int32()),
                pa.array([sequence.astype(np.float32).reshape(-1) for sequence in found], pa.list_(pa.float32())),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        writer.close()


def read(path: Path | str, rows: int = 32) -> Iterator[list[np.ndarray]]:
    """Latents in batches of `rows` sequences, each (L_i, d) float32, without reading the file whole."""
    try:
        with pq.ParquetFile(path) as file:
            channels = int(file.schema_arrow.metadata[b"channels"])
            for batch in file.iter_batches(batch_size=rows, columns=["length", "latents"]):
                flat = batch["latents"].flatten().to_numpy().reshape(-1, channels)
                yield np.split(flat, np.cumsum(batch["length"].to_numpy())[:-1])
    except FileNotFoundError:
        raise tables.TableError(f"{path}: missing; run the study to make it") from None
    except (pa.ArrowInvalid, OSError, KeyError, TypeError) as error:
        raise tables.TableError(f"{path}: no latents ({str(error).splitlines()[0]}); delete it and run again") from None
