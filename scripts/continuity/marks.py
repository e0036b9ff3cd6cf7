"""What each job of a study last did: one small file a job, which the job holds locked for as long as it lives.

A mark whose lock is free and that tells no end is a job that was killed: nothing has to be cleared after a crash.
"""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from continuity import locks

FOLDER = ".state"


def path(study: Path, output: str) -> Path:
    """Where the mark of the job lies whose first output is `output`, relative to the study's folder."""
    return Path(study) / FOLDER / f"{output}.json"


@contextlib.contextmanager
def working(study: Path, output: str) -> Iterator[None]:
    """Mark a job as at work within the block, and then as done, failed with its reason, or stopped on request.

    A second copy of the same job waits until the first has ended. A folder that refuses the mark does not stop the job.
    """
    place = path(study, output)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(locks.alone(place, lambda: _tell(study, output)))
        began = time.time()
        mark = {"state": "running", "host": socket.gethostname(), "pid": os.getpid(), "started": began}
        _put(place, mark)
        try:
            yield
            mark |= {"state": "done"}
        except (KeyboardInterrupt, SystemExit):
            mark |= {"state": "stopped", "reason": "stopped on request; the same command goes on from there"}
            raise
        except BaseException as error:
            said = "; ".join(str(error).split("\n")) or type(error).__name__
            mark |= {"state": "failed", "reason": said if hasattr(error, "problems") else f"{type(error).__name__}: {said}"}
            raise
        finally:
            _put(place, mark | {"seconds": round(time.time() - began, 3)})


def _tell(study: Path, output: str) -> None:
    """Say what a second copy of a job waits for."""
    other = read(study, output)
    where = f"on {other['host']}, process {other['pid']}" if other else "elsewhere"
    print(f"{output}: another copy of this job is at work {where}; waiting for its end", file=sys.stderr, flush=True)


def _put(place: Path, mark: dict) -> None:
    """Write in place: a rename would leave the lock on the old file."""
    try:
        place.write_text(json.dumps(mark) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{place}: {error.strerror}; `continuity status` will not know of this job", file=sys.stderr)


def read(study: Path, output: str) -> dict:
    """The mark of a job: state (running, done, failed, stopped, killed), reason, started, seconds; empty where it never ran."""
    place = path(study, output)
    try:
        mark = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if mark.get("state") != "running" or not locks.free(place):
        return mark
    return mark | {"state": "killed", "reason": "killed without a word: out of memory, out of time, or by hand"}
