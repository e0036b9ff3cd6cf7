"""Compiled CPU loops: numba where it is installed, plain Python where it is not.

`njit` compiles without the interpreter lock and keeps the machine code on disk. The folder is keyed by this file and
numba's version, because numba does not notice that a function compiled *into* a cached one has changed.
`over_batch` shares a loop over samples among threads; every sample is computed by one thread alone, so the result
does not depend on the number of threads.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _cache_folder() -> str:
    """First writable place for numba's cache; a temporary folder, removed at the end, where there is none."""
    try:
        key = hashlib.sha256(Path(__file__).read_bytes() + version("numba").encode()).hexdigest()[:12]
    except (OSError, PackageNotFoundError):
        key = "plain"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    wanted = [os.environ.get("NUMBA_CACHE_DIR"), os.path.join(home, "continuity", f"numba-{key}")]
    for folder in filter(None, wanted):
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    folder = tempfile.mkdtemp(prefix="continuity-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


os.environ["NUMBA_CACHE_DIR"] = _cache_folder()

try:
    import numba

    HAVE_NUMBA = True
except ImportError:
    numba = None
    HAVE_NUMBA = False

BACKEND = "numba" if HAVE_NUMBA else "torch"


def njit(*args, **options):
    """numba.njit with cache, no interpreter lock and IEEE division; returns the function unchanged without numba."""
    settings = {"cache": True, "nogil": True, "error_model": "numpy", **options}

    def compiled(function):
        if not HAVE_NUMBA:
            return function
        try:
            return numba.njit(*signature, **settings)(function)
        except RuntimeError:  # code that comes from no file cannot be kept on disk
            return numba.njit(*signature, **{**settings, "cache": False})(function)

    signature = () if args and callable(args[0]) else args
    return compiled(args[0]) if args and callable(args[0]) else compiled


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="continuity")


def over_batch(kernel, n: int, threads: int, *arrays) -> None:
    """Run kernel(first, last, *arrays) over [0, n) split into `threads` ranges; the kernel writes only its own samples."""
    threads = max(1, min(threads, n))
    if threads == 1:
        kernel(0, n, *arrays)
        return
    edges = [n * i // threads for i in range(threads + 1)]
    jobs = [_pool(os.getpid(), threads).submit(kernel, edges[i], edges[i + 1], *arrays) for i in range(threads)]
    for job in jobs:
        job.result()
