"""Spoken digits as waveforms: a folder or archive of WAV files named digit_speaker_take, as the Free Spoken Digit Dataset."""

from pathlib import Path

from continuity.tasks import archive, user
from continuity.tasks.files import InputProblem
from continuity.tasks.sequences import Task


def load(
    path: str, seed: int = 0, n: dict[str, int] | None = None, name: str = "speech", licence: str = "CC BY-SA 4.0"
) -> Task:
    """Samples in [-1, 1], one channel, ragged; the label is the file's name up to the first "_".

    Recordings are divided 70/15/15 from the seed. n: at most so many a split. Raises InputProblem.
    """
    with archive.opened(path, lambda member: member.lower().endswith(".wav")) as folder:
        if not any(Path(folder).rglob("*.wav")):
            raise InputProblem([f"{path}: holds no .wav: give the recordings of the Free Spoken Digit Dataset"])
        found = user.load(folder, seed, name, label=user.NAME, n=n, licence=licence)
    return Task(name, found.splits, str(path), licence, found.classes, channels=("sample",), notes=found.notes)
