"""Advisory file locks: one run of a study at a time, and none beside a job that outlived its scheduler.

The kernel drops a lock when its process ends, however it ends, so no lock is ever stale.
"""

import contextlib
import fcntl
import time
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
    for pause in PAUSES:
        time.sleep(pause)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            _held.append(handle)
            return True
    handle.close()
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
