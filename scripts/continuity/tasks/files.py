"""Reading a user's file, with every failure as one line that names the file and the remedy."""

import wave
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

TABLES = (".csv", ".tsv", ".parquet", ".npy")
SOUNDS = (".wav",)
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
SUFFIXES = (*TABLES, *SOUNDS, *IMAGES)
LARGEST = 2 << 30  # bytes of a file that is read whole
SHOWN = 20  # problems that are spelt out


class InputProblem(ValueError):
    """Input that cannot be used; `problems` holds one line each: file, place, remedy."""

    def __init__(self, problems: Iterable[str]):
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class Problems:
    """Problems found so far; `stop` raises them together."""

    def __init__(self):
        self.lines: list[str] = []

    def add(self, where: Path | str, text: str) -> None:
        self.lines.append(f"{where}: {text}")

    def stop(self) -> None:
        """Raise InputProblem where there is any."""
        more = len(self.lines) - SHOWN
        if self.lines:
            raise InputProblem(self.lines[:SHOWN] + ([f"and {more} more problems"] if more > 0 else []))


def read_file(file: Path, problems: Problems) -> pa.Table | np.ndarray | None:
    """The table or array of a file; None, and a problem, where it cannot be read.

    A sound is (1, L, channels) in [-1, 1], an image (1, height x width, 1) of grey in [0, 1], row by row.
    """
    readers = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".npy": _npy}
    readers |= dict.fromkeys(SOUNDS, _sound) | dict.fromkeys(IMAGES, _image)
    reader = readers.get(file.suffix.lower())
    if reader is None:
        problems.add(file, f"{file.suffix or 'no suffix'} is no known kind: give {', '.join(SUFFIXES)} or a folder")
        return None
    try:
        size = file.stat().st_size
        if size == 0:
            problems.add(file, "empty: fill it or leave it out")
        elif size > LARGEST:
            problems.add(
                file, f"{size / 1e9:.1f} GB, more than the {LARGEST / 1e9:.1f} GB that are read at once: give a part of it"
            )
        else:
            return reader(file)
    except ImportError:
        problems.add(file, "needs the package pillow: pip install pillow")
    except OSError as error:
        problems.add(file, f"cannot be read ({error.strerror or _line(error)}): check that it is whole and allowed")
    except UnicodeDecodeError:
        problems.add(file, "no UTF-8 text: save it as UTF-8")
    except MemoryError:
        problems.add(file, "does not fit into memory: give a part of it")
    except (pa.ArrowException, ValueError, EOFError, wave.Error) as error:
        text = _line(error)
        remedy = "save it as UTF-8" if "UTF8" in text else "truncated or of another kind; export it again"
        problems.add(file, f"cannot be read as {file.suffix[1:]} ({text}): {remedy}")
    return None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _csv(file: Path) -> pa.Table:
    with open(file, encoding="utf-8", newline="") as text:
        header = text.readline()
    delimiter = max(",;\t", key=header.count)
    read = csv.ReadOptions(use_threads=False)
    convert = csv.ConvertOptions(strings_can_be_null=True)
    return csv.read_csv(file, read, csv.ParseOptions(delimiter=delimiter), convert)


def _parquet(file: Path) -> pa.Table:
    return pq.read_table(file, partitioning=None)


def _npy(file: Path) -> np.ndarray:
    return np.load(file, allow_pickle=False)


def _sound(file: Path) -> np.ndarray:
    with wave.open(str(file), "rb") as sound:
        width, channels, frames = sound.getsampwidth(), sound.getnchannels(), sound.getnframes()
        data = sound.readframes(frames)
    if len(data) < frames * width * channels or not frames:
        raise ValueError(f"{len(data) // (width * channels)} of {frames} samples")
    if width == 1:
        samples = np.frombuffer(data, np.uint8).astype(np.float32) - 128
    else:
        # Little-endian integers of any width, shifted to the top of 32 bits.
        padded = np.zeros((len(data) // width, 4), np.uint8)
        padded[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
        samples = padded.view("<i4")[:, 0] / np.float32(1 << 8 * (4 - width))
    return (samples / np.float32(1 << (8 * width - 1))).reshape(1, -1, channels)


def _image(file: Path) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(file) as image:
            grey = np.asarray(image if image.mode.startswith(("I", "F")) else image.convert("L"), dtype=np.float32)
            scale = 65535 if image.mode.startswith("I") else 255
    except (Image.DecompressionBombError, SyntaxError) as error:
        raise ValueError(_line(error)) from None
    return (grey / np.float32(scale)).reshape(1, -1, 1)
