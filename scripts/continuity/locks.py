"""Advisory file locks: one run of a study at a time, and none beside a job that outlived its scheduler.

The kernel drops a lock when its process ends, however it ends, so no lock is ever stale.
"""

import contextlib
import fcntl
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STUDY = ".lock"
JOBS = ".jobs"
PAUSES = (0.0, 0.05, 0.1)
"""Seconds before each try: whoever only looks (`free`) holds a lock for an instant."""
_held = []


def hold(path: Path | str, shared: bool = False) -> bool:
    """Lock `path` until this process ends; False where another process holds it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = open(path, "a")
    if _taken(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
        _held.append(handle)
        return True
    handle.close()
    return False


@contextlib.contextmanager
def alone(path: Path | str, tell: Callable[[], None], pause: float = 1.0, every: float = 300.0) -> Iterator[None]:
    """Hold `path` within the block; while another process holds it, wait, and call tell() at once and every so many seconds.

    Raises OSError where the file cannot be made or the file system has no locks.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = -math.inf
    with open(path, "a") as handle:
        while not _taken(handle):
            if time.monotonic() - told >= every:
                told = time.monotonic()
                tell()
            time.sleep(pause)
        yield


def _taken(handle, kind: int = fcntl.LOCK_EX) -> bool:
    for pause in PAUSES:
        time.sleep(pause)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
    return False


def free(path: Path | str) -> bool:
    """Whether no process holds `path`."""
    if not Path(path).exists():
        return True
    with open(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
