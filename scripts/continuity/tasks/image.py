"""Image of the Long Range Arena: CIFAR-10 in grey, a pixel a step, row by row (Krizhevsky 2009; Tay et al. 2021)."""

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from continuity.tasks import archive, fetch
from continuity.tasks.files import IMAGES, InputProblem, Problems, read_file
from continuity.tasks.sequences import Sequences, Task, divide

HUB = ("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2")
MEAN, DEVIATION = 122.6 / 255, 61.0 / 255
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(seed: int = 0, n: dict[str, int] | None = None, path: str | None = None, name: str = "image") -> Task:
    """Grey pixels less their mean over their deviation, one channel, 10 classes.

    path: a folder or archive with train/<class>/ and test/<class>/ of images, or with the hub's Parquet files; from the hub
    where there is none. A tenth of the training images, drawn from the seed, validates. n: at most so many a split.
    Raises InputProblem, a line for every image that cannot be read.
    """
    if path is None:
        return _task(
            name, _from_parquet([_hub_file(part) for part in ("train", "test")]), f"hub: {HUB[0]} at {HUB[1]}", n, seed
        )
    with archive.opened(path, lambda member: member.lower().endswith((*IMAGES, ".parquet"))) as folder:
        tables = sorted(folder.rglob("*.parquet"))
        found = _from_parquet(tables) if tables else _from_folder(folder, path)
        return _task(name, found, str(path), n, seed)


def _hub_file(part: str) -> Path:
    files = fetch.hub_files(*HUB)
    names = [file for file in files if file.endswith(".parquet") and Path(file).name.startswith(part)]
    if len(names) != 1:
        raise InputProblem(
            [f"{HUB[0]}: {len(names)} Parquet files of {part} at {HUB[1]}, not one: give a local folder as path"]
        )
    return fetch.fetch_hub(*HUB, names[0], files[names[0]])


def _from_folder(folder: Path, source) -> tuple[tuple[str, ...], dict[str, list]]:
    found = {part: sorted(file for file in folder.rglob(f"{part}/*/*") if file.suffix.lower() in IMAGES)
             for part in ("train", "test")}  # fmt: skip
    classes = tuple(sorted({file.parent.name for files in found.values() for file in files}))
    if len(classes) < 2 or not found["train"]:
        raise InputProblem([f"{source}: holds no train/<class>/ and test/<class>/ of images: give the folder of CIFAR-10"])
    return classes, {part: [(file, classes.index(file.parent.name)) for file in files] for part, files in found.items()}


def _from_parquet(files: list[Path]) -> tuple[tuple[str, ...], dict[str, list]]:
    parts: dict[str, list] = {"train": [], "test": []}
    for file in files:
        part = next((part for part in parts if file.name.startswith(part)), None)
        try:
            table = pq.read_table(file, partitioning=None)
            images, labels = table[table.column_names[0]].to_pylist(), table["label"].to_pylist()
            rows = [(image["bytes"], int(label)) for image, label in zip(images, labels, strict=True)]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise InputProblem([f"{file}: no Parquet of images and labels ({error}): download it again"]) from None
        if part is None:
            raise InputProblem([f"{file}: name it train... or test..., so that its part is known"])
        parts[part] += rows
    return CLASSES, parts


def _task(name: str, found: tuple, source: str, n: dict | None, seed: int) -> Task:
    classes, parts = found
    problems, splits = Problems(), {}
    for split, rows in divide(parts["train"], parts["test"], n, seed).items():
        pixels = [_grey(item, source, problems) for item, _ in rows]
        problems.stop()
        values = np.concatenate(pixels) if pixels else np.zeros((0, 1), np.float32)
        labels = np.array([label for _, label in rows], np.int32)
        splits[split] = Sequences((values - MEAN) / DEVIATION, np.array([len(one) for one in pixels], np.int32), labels)
    return Task(name, splits, source, "CIFAR-10 (Krizhevsky 2009)", classes, channels=("grey",))


def _grey(item: Path | bytes, source, problems: Problems) -> np.ndarray:
    """(pixels, 1) float32 in [0, 1]; nothing, and a problem, where it is no image."""
    if isinstance(item, Path):
        found = read_file(item, problems)
    else:
        found = _decoded(item, source, problems)
    return np.zeros((0, 1), np.float32) if found is None else found.reshape(-1, 1).astype(np.float32)


def _decoded(content: bytes, source, problems: Problems) -> np.ndarray | None:
    try:
        return grey(content)
    except OSError as error:
        problems.add(source, f"an image cannot be read ({error}): download it again")
        return None


def grey(content: bytes) -> np.ndarray:
    """(pixels, 1) float32 in [0, 1] of an image file's content; OSError where it is none."""
    try:
        from PIL import Image
    except ImportError:
        raise InputProblem(["images need the package pillow: pip install pillow"]) from None
    return np.asarray(Image.open(io.BytesIO(content)).convert("L"), dtype=np.float32).reshape(-1, 1) / np.float32(255)
