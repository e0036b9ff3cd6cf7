"""Text and Retrieval of the Long Range Arena: film reviews, and pairs of papers, as bytes (Tay et al. 2021).

Both come from a local folder or archive, or are downloaded: the reviews from their authors, checked by hash, the pairs from
the hub at a pinned revision.
"""

from pathlib import Path

import numpy as np

from continuity.tasks import archive, fetch
from continuity.tasks.files import InputProblem
from continuity.tasks.sequences import SPLITS, Sequences, Task, divide

IMDB = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
IMDB_DIGEST = "md5:7c2ac02c03563afcf9b574c7e56c153a"
AAN = ("OpenNLPLab/lra", "6cb133c44f406da743661688df9e977b87d98775", "data/aan/new_aan_pairs.{}.tsv")
PARTS = {"train": "train", "validation": "eval", "test": "test"}
SEPARATOR = 257  # symbol between the two texts of a pair
BYTES = ("<pad>", *(chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in range(256)))


def load(seed: int = 0, n: dict[str, int] | None = None, path: str | None = None, length: int = 4096,
         name: str = "text") -> Task:  # fmt: skip
    """Film reviews of IMDB (Maas et al. 2011) as bytes, cut at `length`; labels neg and pos.

    path: a folder or archive with train/{neg,pos}/*.txt and test/{neg,pos}/*.txt; downloaded where there is none. A tenth of
    the training reviews, drawn from the seed, validates. n: at most so many a split. Raises InputProblem.
    """
    source = path or fetch.fetch(IMDB, fetch.cache() / "aclImdb_v1.tar.gz", IMDB_DIGEST)
    with archive.opened(source, lambda member: member.endswith(".txt") and "/unsup/" not in member) as folder:
        files = {part: _reviews(folder, part, source) for part in ("train", "test")}
        chosen = divide(files["train"], files["test"], n, seed)
        splits = {split: _bytes([file.read_bytes()[:length] for file, _ in rows], [k for _, k in rows], source)
                  for split, rows in chosen.items()}  # fmt: skip
    return Task(name, splits, str(path or IMDB), "free for research with citation (Maas et al. 2011)", ("neg", "pos"), BYTES)


def _reviews(folder: Path, part: str, source) -> list[tuple[Path, int]]:
    found = [(file, k) for k, kind in enumerate(("neg", "pos")) for file in sorted(folder.rglob(f"{part}/{kind}/*.txt"))]
    if len({k for _, k in found}) < 2:
        raise InputProblem([f"{source}: holds no {part}/neg/*.txt and {part}/pos/*.txt: give the folder or archive of aclImdb"])
    return found


def _bytes(texts: list[bytes], labels: list[int], source) -> Sequences:
    empty = [i for i, text in enumerate(texts) if not text]
    if empty:
        raise InputProblem([f"{source}: {len(empty)} of the texts are empty: download it again"])
    values = [np.frombuffer(text, np.uint8).astype(np.int16) + 1 for text in texts]
    return _sequences(values, labels)


def _sequences(values: list[np.ndarray], labels: list[int]) -> Sequences:
    joined = np.concatenate(values) if values else np.zeros(0, np.int16)
    return Sequences(joined, np.array([len(one) for one in values], np.int32), np.array(labels, np.int32))


def load_pairs(seed: int = 0, n: dict[str, int] | None = None, path: str | None = None, length: int = 4000,
               name: str = "retrieval") -> Task:  # fmt: skip
    """Pairs of papers of the ACL Anthology Network: does one cite the other? Both texts, each cut at `length`, one after
    the other with a separator between, as one sequence of bytes.

    path: a folder or archive with new_aan_pairs.{train,eval,test}.tsv (label, id, id, text, text); from the hub where there
    is none. n: at most so many a split, drawn from the seed. Raises InputProblem.
    """
    if path is None:
        return _pairs({split: _hub_file(part) for split, part in PARTS.items()}, AAN[0], seed, n, length, name)
    with archive.opened(path, lambda member: member.endswith(".tsv")) as folder:
        files = {split: next(iter(sorted(folder.rglob(f"new_aan_pairs.{part}.tsv"))), None) for split, part in PARTS.items()}
        missing = [f"new_aan_pairs.{PARTS[split]}.tsv" for split, file in files.items() if file is None]
        if missing:
            raise InputProblem([f"{path}: holds no {', '.join(missing)}: give the folder or archive of the Long Range Arena"])
        return _pairs(files, path, seed, n, length, name)


def _hub_file(part: str) -> Path:
    dataset, revision, pattern = AAN
    path = pattern.format(part)
    return fetch.fetch_hub(dataset, revision, path, fetch.hub_files(dataset, revision).get(path))


def _pairs(files: dict[str, Path], source, seed: int, n: dict | None, length: int, name: str) -> Task:
    splits = {}
    for split in SPLITS:
        rows = _lines(files[split])
        wanted = len(rows) if n is None else min(n.get(split, 0), len(rows))
        kept = sorted(np.random.default_rng([seed, 17]).permutation(len(rows))[:wanted].tolist())
        read = [_pair(files[split], rows, i, length) for i in kept]
        splits[split] = _sequences([values for values, _ in read], [label for _, label in read])
    return Task(name, splits, str(source), "see the ACL Anthology Network", ("apart", "cites"), (*BYTES, "<sep>"))


def _lines(file: Path) -> list[tuple[int, int]]:
    """First byte and length of every line: the file is larger than memory may be."""
    found, start = [], 0
    with open(file, "rb") as text:
        for line in text:
            if line.strip():
                found.append((start, len(line)))
            start += len(line)
    return found


def _pair(file: Path, rows: list, i: int, length: int) -> tuple[np.ndarray, int]:
    with open(file, "rb") as text:
        text.seek(rows[i][0])
        cells = text.read(rows[i][1]).rstrip(b"\r\n").split(b"\t")
    if len(cells) != 5 or cells[0] not in (b"0", b"1", b"0.0", b"1.0"):
        raise InputProblem([f"{file}, line {i + 1}: {len(cells)} cells, not label, id, id, text, text: download it again"])
    first, second = (np.frombuffer(cell[:length], np.uint8).astype(np.int16) + 1 for cell in cells[3:])
    return np.concatenate([first, np.array([SEPARATOR], np.int16), second]), int(float(cells[0]))
