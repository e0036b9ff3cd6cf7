"""Downloads that end: resumed where they stopped, tried again, checked by size and by hash, and whole or not there at all."""

import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

from continuity.tasks.files import InputProblem

TRIES = 5
WAIT = 1.0  # seconds before the second try; doubled before each one after
TIMEOUT = 60.0
BLOCK = 1 << 20
PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that may be better a moment later


def cache() -> Path:
    """Where downloads are kept: CONTINUITY_DATA, else a folder in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get("CONTINUITY_DATA") or os.path.join(home, "continuity", "data"))


def fetch(url: str, target: Path, digest: str | None = None) -> Path:
    """The file of `url` at `target`, downloaded unless it is there; digest: "md5:..." or "sha256:..." of its content.

    What was received before an interruption is kept beside it and continued. Raises InputProblem, in one line, where the
    server refuses, ends too early TRIES times, or sends something of another hash.
    """
    if target.exists() and (digest is None or hash_of(target, digest) == digest):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(WAIT * 2 ** (attempt - 1))
        try:
            _receive(url, part)
        except urllib.error.HTTPError as error:
            reason = f"the server answers {error.code} {error.reason}"
            if error.code == 416:
                part.unlink(missing_ok=True)
            elif error.code not in PASSING:
                break
            continue
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
            continue
        found = hash_of(part, digest) if digest else digest
        if found == digest:
            os.replace(part, target)
            return target
        part.unlink()
        reason = f"its {found.replace(':', ' is ')}, not {digest.partition(':')[2]}"
    raise InputProblem([f"{url}: not downloaded: {reason}; try again later, or give a local file as path"])


def _receive(url: str, part: Path) -> None:
    """Append what `part` lacks; OSError where the connection ends before the announced size."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-", "User-Agent": "continuity"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumed = answer.status == 206
        length = answer.headers.get("Content-Length")
        whole = None if length is None else int(length) + (have if resumed else 0)
        with open(part, "ab" if resumed else "wb") as out:
            while block := answer.read(BLOCK):
                out.write(block)
    size = part.stat().st_size
    if whole is not None and size < whole:
        raise OSError(f"the connection ended after {size} of {whole} bytes")


def hash_of(file: Path, digest: str) -> str:
    """The hash of a file, of the kind and in the form of `digest`."""
    kind = digest.partition(":")[0]
    with open(file, "rb") as content:
        return f"{kind}:{hashlib.file_digest(content, kind).hexdigest()}"


def check(file: Path, digest: str) -> None:
    """Raise InputProblem where a file has another hash."""
    found = hash_of(file, digest)
    if found != digest:
        kind, _, wanted = digest.partition(":")
        raise InputProblem([f"{file}: its {kind} is {found.partition(':')[2]}, not {wanted}: download it again"])


# ---------------------------------------------------------------- the hub

LINKED = re.compile(r'<([^>]+)>;\s*rel="next"')


def endpoint() -> str:
    """Address of the hub: HF_ENDPOINT, or the public one."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def revision_of(dataset: str) -> str:
    """The commit that the main branch of a hub data set stands at."""
    return _json(f"{endpoint()}/api/datasets/{dataset}")[0]["sha"]


def hub_files(dataset: str, revision: str) -> dict[str, str | None]:
    """Path of every file of a hub data set at a revision -> its digest, where the hub has one."""
    url, found = f"{endpoint()}/api/datasets/{dataset}/tree/{revision}?recursive=true", {}
    while url:
        page, url = _json(url)
        for entry in page:
            if entry["type"] == "file":
                found[entry["path"]] = f"sha256:{entry['lfs']['oid']}" if entry.get("lfs") else None
    return found


def fetch_hub(dataset: str, revision: str, path: str, digest: str | None = None) -> Path:
    """One file of a hub data set at a revision, from the cache or downloaded."""
    url = f"{endpoint()}/datasets/{dataset}/resolve/{revision}/{path}"
    return fetch(url, cache() / "hub" / dataset / revision / path, digest)


def _json(url: str) -> tuple:
    """(content, address of the next page or None) of an address that answers JSON."""
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(WAIT * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                following = LINKED.search(answer.headers.get("Link") or "")
                return json.load(answer), following[1] if following else None
        except urllib.error.HTTPError as error:
            reason = f"the hub answers {error.code} {error.reason}"
            if error.code not in PASSING:
                break
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or error)
    raise InputProblem([f"{url}: {reason}; check the name and the network, or give a local file as path"])
