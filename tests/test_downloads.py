"""Downloads from a loopback server that breaks off, forgets, lies and refuses; and the tasks that are read from them."""

import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from continuity.tasks import archive, fetch, image, make, text
from continuity.tasks.files import InputProblem
from PIL import Image

CONTENT = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by path; `plans` says, request by request of a path, how to misbehave."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.plans: dict[str, list] = {}
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        plan = self.server.plans.get(self.path, [])
        step = plan.pop(0) if plan else "whole"
        content = self.server.files.get(self.path.partition("?")[0])
        if content is None or isinstance(step, int):
            self.send_error(step if isinstance(step, int) else 404)
            return
        start = int(self.headers["Range"].split("=")[1].rstrip("-")) if "Range" in self.headers and step != "forgetful" else 0
        if start >= len(content) and start:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        self.wfile.write({"cut": body[: len(body) // 2], "other": bytes(len(body))}.get(step, body))


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "WAIT", 0.0)
    monkeypatch.setenv("CONTINUITY_DATA", str(tmp_path / "cache"))
    found = Server()
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


@pytest.fixture
def file(server):
    server.files["/data.bin"] = CONTENT
    return f"{server.url}/data.bin"


@pytest.mark.parametrize(
    "plan",
    [[], ["cut"], ["cut", "cut", "cut"], [503, 429], ["cut", "forgetful"], ["other"], ["cut", "other"], [500, "cut", "other"]],
)
def test_a_download_arrives_whole_whatever_the_server_did_first(server, file, tmp_path, plan):
    server.plans["/data.bin"] = plan
    found = fetch.fetch(file, tmp_path / "a" / "data.bin", DIGEST)
    assert found.read_bytes() == CONTENT and [path.name for path in found.parent.iterdir()] == ["data.bin"]


def test_an_interrupted_download_goes_on_where_it_stopped(server, file, tmp_path):
    server.plans["/data.bin"] = ["cut"] * fetch.TRIES
    target = tmp_path / "data.bin"
    with pytest.raises(
        InputProblem, match=r"data.bin: not downloaded: the connection ended after \d+ of 300000 bytes; try again"
    ):
        fetch.fetch(file, target, DIGEST)
    assert not target.exists()
    have = (tmp_path / "data.bin.part").stat().st_size
    assert 0 < have < len(CONTENT)
    server.asked.clear()
    assert fetch.fetch(file, target, DIGEST).read_bytes() == CONTENT
    assert server.asked == [("/data.bin", f"bytes={have}-")]


def test_what_is_there_is_not_asked_for_again_unless_its_hash_is_wrong(server, file, tmp_path):
    target = fetch.fetch(file, tmp_path / "data.bin", DIGEST)
    fetch.fetch(file, target, DIGEST)
    assert len(server.asked) == 1
    target.write_bytes(CONTENT[:-1])
    assert fetch.fetch(file, target, DIGEST).read_bytes() == CONTENT


def test_a_wrong_hash_leaves_nothing_behind_and_is_said(server, file, tmp_path):
    with pytest.raises(InputProblem, match="its md5 is [0-9a-f]{32}, not 0123; try again later, or give a local file"):
        fetch.fetch(file, tmp_path / "data.bin", "md5:0123")
    assert list(tmp_path.glob("data.bin*")) == []
    path = tmp_path / "mine.bin"
    path.write_bytes(CONTENT)
    fetch.check(path, DIGEST)
    with pytest.raises(InputProblem, match="mine.bin: its md5 is .* not 0123: download it again"):
        fetch.check(path, "md5:0123")


def test_a_refusal_is_one_line_and_is_not_repeated(server, tmp_path):
    with pytest.raises(InputProblem, match="absent: not downloaded: the server answers 404 Not Found") as error:
        fetch.fetch(f"{server.url}/absent", tmp_path / "a")
    assert len(server.asked) == 1 and len(error.value.problems) == 1
    with pytest.raises(InputProblem, match="not downloaded"):
        fetch.fetch("http://127.0.0.1:9/none", tmp_path / "a")


# The hub


def on_hub(server, dataset, revision, files):
    """Lay files under a data set of the hub, all with their hash, on two pages."""
    listing = []
    for path, content in files.items():
        server.files[f"/datasets/{dataset}/resolve/{revision}/{path}"] = content
        listing.append({"type": "file", "path": path, "lfs": {"oid": hashlib.sha256(content).hexdigest()}})
    server.files[f"/api/datasets/{dataset}"] = json.dumps({"sha": revision}).encode()
    server.files[f"/api/datasets/{dataset}/tree/{revision}"] = json.dumps(
        [{"type": "directory", "path": "x"}, *listing]
    ).encode()


def png(grey):
    out = io.BytesIO()
    Image.fromarray(grey).save(out, "PNG")
    return out.getvalue()


def parquet(table):
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def cifar(n, seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (n, 32, 32), dtype=np.uint8)
    labels = [i % 10 for i in range(n)]
    return pixels, pa.table({"img": [{"bytes": png(one), "path": None} for one in pixels], "label": labels})


def test_images_come_from_the_hub_at_their_pinned_revision(server):
    train, test = cifar(40, 1), cifar(20, 2)
    files = {f"plain_text/{part}-0.parquet": parquet(t) for part, (_, t) in (("train", train), ("test", test))}
    on_hub(server, *image.HUB, files)
    server.plans[f"/datasets/{image.HUB[0]}/resolve/{image.HUB[1]}/plain_text/train-0.parquet"] = ["cut", 503]
    task = make({"name": "image"}, seed=3)
    assert [len(part) for part in task.splits.values()] == [36, 4, 20] and task.classes[3] == "cat"
    found = {(task.splits["test"][i][:, 0] * 61 + 122.6).round().astype(np.uint8).tobytes() for i in range(20)}
    assert found == {one.tobytes() for one in test[0]}
    asked = len(server.asked)
    again = make({"name": "image", "n": {"train": 5, "test": 3}}, seed=3)
    assert [len(part) for part in again.splits.values()] == [5, 0, 3]
    assert all("/resolve/" not in path for path, _ in server.asked[asked:])


def pairs(n):
    return [(i % 2, f"p{i}", f"q{i}", f"first text {i} é", "second " * (i + 1)) for i in range(n)]


def test_pairs_of_papers_come_from_the_hub_or_a_folder(server, tmp_path):
    rows = {"train": pairs(9), "eval": pairs(4), "test": pairs(5)}
    content = {part: "\n".join("\t".join(map(str, row)) for row in found).encode() for part, found in rows.items()}
    dataset, revision, pattern = text.AAN
    on_hub(server, dataset, revision, {pattern.format(part): found for part, found in content.items()})
    (tmp_path / "aan").mkdir()
    for part, found in content.items():
        (tmp_path / "aan" / f"new_aan_pairs.{part}.tsv").write_bytes(found)
    for task in (make({"name": "retrieval"}), make({"name": "retrieval", "path": str(tmp_path)})):
        test = task.splits["test"]
        assert [len(part) for part in task.splits.values()] == [9, 4, 5] and test.labels.tolist() == [0, 1, 0, 1, 0]
        for i, (_, _, _, first, second) in enumerate(rows["test"]):
            assert bytes((test[i][test[i] != text.SEPARATOR] - 1).astype(np.uint8).tolist()) == (first + second).encode()
            assert test[i][len(first.encode())] == text.SEPARATOR == len(task.vocab) - 1
    short = make({"name": "retrieval", "path": str(tmp_path), "n": {"test": 2}, "length": 4})
    assert len(short.splits["train"]) == 0 and set(short.splits["test"].lengths) == {9}
    (tmp_path / "aan" / "new_aan_pairs.test.tsv").write_text("1\tonly\ttwo\n")
    with pytest.raises(InputProblem, match="new_aan_pairs.test.tsv, line 1: 3 cells, not label, id, id, text, text"):
        make({"name": "retrieval", "path": str(tmp_path)})


@pytest.mark.parametrize("answer, said", [(b"no json", "Expecting value"), (None, "404")])
def test_a_hub_that_does_not_answer_is_one_line(server, answer, said):
    if answer is not None:
        server.files[f"/api/datasets/{image.HUB[0]}/tree/{image.HUB[1]}"] = answer
    with pytest.raises(InputProblem, match=f"{said}.*check the name and the network, or give a local file") as error:
        make({"name": "image"})
    assert len(error.value.problems) == 1


# Folders and archives


def reviews(folder, n=20):
    for part in ("train", "test"):
        for kind in ("neg", "pos"):
            (folder / "aclImdb" / part / kind).mkdir(parents=True)
            for i in range(n):
                (folder / "aclImdb" / part / kind / f"{i}_1.txt").write_bytes(f"{part} {kind} {i} naïve".encode() * (1 + i % 3))
    return folder


def packed(folder, path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            for file in sorted(folder.rglob("*.txt")):
                out.write(file, file.relative_to(folder))
    else:
        with tarfile.open(path, "w:gz") as out:
            out.add(folder / "aclImdb", "aclImdb")
    return path


@pytest.fixture(scope="module")
def imdb(tmp_path_factory):
    return reviews(tmp_path_factory.mktemp("imdb"))


def test_reviews_are_the_same_from_folder_zip_tar_and_server(server, imdb, tmp_path, monkeypatch):
    tar = packed(imdb, tmp_path / "a.tar.gz")
    server.files["/aclImdb_v1.tar.gz"] = tar.read_bytes()
    server.plans["/aclImdb_v1.tar.gz"] = ["cut"]
    monkeypatch.setattr(text, "IMDB", f"{server.url}/aclImdb_v1.tar.gz")
    monkeypatch.setattr(text, "IMDB_DIGEST", "md5:" + hashlib.md5(tar.read_bytes()).hexdigest())
    paths = [str(imdb), str(packed(imdb, tmp_path / "a.zip")), str(tar)]
    tasks = [make({"name": "text", "path": path, "length": 30}, seed=2) for path in paths]
    tasks.append(make({"name": "text", "length": 30}, seed=2))
    for task in tasks:
        assert [len(part) for part in task.splits.values()] == [36, 4, 40]
        for split, part in task.splits.items():
            np.testing.assert_array_equal(part.values, tasks[0].splits[split].values)
            for i in range(len(part)):
                said = bytes((part[i] - 1).astype(np.uint8).tolist()).decode(errors="ignore")
                assert said.split()[1] == task.classes[part.labels[i]] and len(part[i]) <= 30
                assert said.split()[0] == ("test" if split == "test" else "train")


@pytest.mark.parametrize("kind", ["a.zip", "a.tar.gz"])
def test_a_torn_archive_is_one_line(imdb, tmp_path, kind):
    path = packed(imdb, tmp_path / kind)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputProblem, match=f"{kind}: (no whole archive|cannot be unpacked)") as error:
        make({"name": "text", "path": str(path)})
    assert len(error.value.problems) == 1


def test_members_outside_an_archive_are_left_out(tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("../outside.txt", "x")
        out.writestr("inside.txt", "y")
    with archive.opened(path) as folder:
        assert [file.name for file in folder.rglob("*.*")] == ["inside.txt"]
    assert not (tmp_path / "outside.txt").exists()


def test_folders_without_the_files_of_a_task_are_refused(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    for name, wanted in (
        ("text", "train/neg"),
        ("retrieval", "new_aan_pairs.train.tsv"),
        ("image", "train/<class>"),
        ("speech", ".wav"),
    ):
        with pytest.raises(InputProblem, match=wanted):
            make({"name": name, "path": str(tmp_path)})
        with pytest.raises(InputProblem, match="no such file or folder"):
            make({"name": name, "path": str(tmp_path / "absent")})


def test_images_are_read_from_folders_and_a_corrupt_one_is_named(tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 10), ("test", 4)):
        for kind in ("cat", "dog"):
            (tmp_path / part / kind).mkdir(parents=True)
            for i in range(n):
                Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / part / kind / f"{i}.png")
    task = make({"name": "image", "path": str(tmp_path)})
    assert [len(part) for part in task.splits.values()] == [18, 2, 8] and task.classes == ("cat", "dog")
    assert set(task.splits["train"].lengths) == {64}
    whole = (tmp_path / "test/dog/2.png").read_bytes()
    (tmp_path / "test/dog/2.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "test/dog/3.png").write_bytes(b"")
    with pytest.raises(InputProblem, match=r"2.png: cannot be read[^\n]*\n[^\n]*3.png: empty"):
        make({"name": "image", "path": str(tmp_path)})
