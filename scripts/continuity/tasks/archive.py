"""A folder, or a .zip, .tar, .tar.gz or .tgz of it, read alike."""

import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from continuity.tasks.files import InputProblem

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".gz")


def is_archive(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


@contextmanager
def opened(path: Path | str, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Path]:
    """The folder itself, or a temporary one that holds the wanted members of an archive.

    Members that would lie outside it are left out. Raises InputProblem for what is missing, torn or no archive.
    """
    path = Path(path)
    if path.is_dir():
        yield path
        return
    if not path.exists():
        raise InputProblem([f"{path}: no such file or folder: correct the path"])
    with tempfile.TemporaryDirectory(prefix="continuity-") as folder:
        try:
            _unpack(path, folder, wanted)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError) as error:
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputProblem([f"{path}: no whole archive ({text}): download it again"]) from None
        except OSError as error:
            text = error.strerror or str(error)
            raise InputProblem(
                [f"{path}: cannot be unpacked ({text}): check that it is a whole {', '.join(SUFFIXES)}"]
            ) from None
        yield Path(folder)


def _unpack(path: Path, folder: str, wanted: Callable[[str], bool]) -> None:
    if zipfile.is_zipfile(path) or path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.is_dir() and _inside(member.filename) and wanted(member.filename):
                    archive.extract(member, folder)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and _inside(member.name) and wanted(member.name):
                archive.extract(member, folder, filter="data")


def _inside(name: str) -> bool:
    parts = PurePosixPath(name.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts
