"""`continuity score`: every format gives the score that the metric gives, and every mistake ends in one line and exit 2."""

import json
import math
import wave
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from continuity import scoring
from continuity.cli import main
from continuity.metric import task_continuity
from continuity.tables import write
from continuity.tasks import fetch, make
from PIL import Image

SMALL = ["--min-separation", "32"]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A folder above which there is no study."""
    monkeypatch.delenv("CONTINUITY_RESULTS", raising=False)
    monkeypatch.chdir(tmp_path)


def score(capsys, *arguments):
    main(["score", *map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["score", *map(str, arguments)])
    out, error = capsys.readouterr()
    assert stop.value.code == 2 and out == "" and "Traceback" not in error
    return error.strip()


def walks(n=12, length=200, d=2, rho=0.9, seed=0):
    """Stationary first-order autoregressions (n, L, d)."""
    noise = np.random.default_rng(seed).standard_normal((n, length, d))
    out = noise.copy()
    for t in range(1, length):
        out[:, t] = rho * out[:, t - 1] + math.sqrt(1 - rho**2) * noise[:, t]
    return out


def standardised(data):
    return (data - data.mean((0, 1))) / data.std((0, 1))


def long_table(data):
    n, length, d = data.shape
    columns = {"id": np.repeat(np.arange(n), length), "time": np.tile(np.arange(length), n)}
    return pa.table(columns | {f"x{k}": data[:, :, k].ravel() for k in range(d)})


# Formats


@pytest.fixture
def data():
    return walks().astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy", "folder"])
def test_tables_and_arrays_have_the_score_of_their_standardised_values(capsys, tmp_path, data, kind):
    path = tmp_path / f"mine.{kind}"
    if kind == "csv":
        table = long_table(data)
        rows = [",".join(table.column_names), *(",".join(map(repr, row.values())) for row in table.to_pylist())]
        path.write_text("\n".join(rows))
    elif kind == "parquet":
        pq.write_table(long_table(data), path)
    elif kind == "npy":
        np.save(path, data)
    else:
        path.mkdir()
        for i, one in enumerate(data):
            np.save(path / f"{i:02}.npy", one[None])
    found = score(capsys, path, *SMALL)
    expected = task_continuity(standardised(data), min_separation=32, max_separation=96)
    assert found["sequences"] == 12 and found["length_min"] == found["length_max"] == 200
    assert found["mu"] == pytest.approx(expected.mu, abs=1e-6)
    assert found["low"] < found["mu"] < found["high"]
    np.testing.assert_allclose([row["mu_t"] for row in found["lags"]], expected.mu_t, atol=1e-6)
    assert abs(found["null_mu"]) < 0.1 < found["mu"]
    if kind in ("csv", "parquet"):
        assert "column id taken as sequence" in found["notes"] and "column time taken as time" in found["notes"]


def test_columns_can_be_named(capsys, tmp_path, data):
    table = long_table(data).rename_columns(["who", "when", "a", "b"])
    pq.write_table(table, tmp_path / "mine.parquet")
    found = score(capsys, "mine.parquet", "--group", "who", "--time", "when", "--values", "a", *SMALL)
    expected = score(capsys, "mine.parquet", "--group", "who", "--values", "a", "b", *SMALL)
    assert found["channels"] == ["a"] and found["kernel"] == "fourier" and found["sequences"] == 12
    assert expected["channels"] == ["a", "b"] and expected["kernel"] == "cosine"


def test_units_do_not_matter_unless_the_values_are_taken_raw(capsys, tmp_path, data):
    np.save("mine.npy", data)
    np.save("scaled.npy", data * [1000, 0.1] + [300, -5])
    for flags, same in (([], True), (["--channels", "raw"], False)):
        one, other = score(capsys, "mine.npy", *SMALL, *flags), score(capsys, "scaled.npy", *SMALL, *flags)
        assert (one["mu"] == pytest.approx(other["mu"], abs=1e-4)) == same
    expected = task_continuity(data, min_separation=32, max_separation=96)
    assert score(capsys, "mine.npy", *SMALL, "--channels", "raw")["mu"] == pytest.approx(expected.mu, abs=1e-6)


def test_text_is_scored_as_symbols(capsys, tmp_path):
    rng = np.random.default_rng(0)
    held = np.repeat(rng.integers(97, 117, 40_000 // 4), 4).astype(np.uint8)
    (tmp_path / "held.txt").write_bytes(held.tobytes())
    found = score(capsys, "held.txt", "--max-lag", "3")
    # Symbols held 4 steps: mu_t = (4 - t) / 4, up to the far pairs of a finite text.
    np.testing.assert_allclose([row["mu_t"] for row in found["lags"]], [0.75, 0.5, 0.25], atol=0.02)
    assert found["kind"] == "bytes" and found["sequences"] == 9 and found["length_max"] == scoring.PIECE
    (tmp_path / "noise.bin").write_bytes(rng.integers(0, 256, 20_000, dtype=np.uint8).tobytes())
    assert abs(score(capsys, "noise.bin")["mu"]) < 0.01


def test_a_large_text_is_read_in_few_places_that_are_told(capsys, tmp_path):
    with open(tmp_path / "large.txt", "wb") as out:
        out.truncate(3 << 30)
        out.write(b"ab" * 3000)
    found = score(capsys, "large.txt", "--sequences", "8")
    assert found["sequences"] == 8 and "8 of 786432 pieces, evenly chosen" in found["notes"]


def write_wav(path, samples, width=2, rate=8000):
    """samples (L, channels) in [-1, 1)."""
    whole = np.round(samples * (1 << (8 * width - 1))).astype("<i4")
    data = (whole + 128).astype(np.uint8) if width == 1 else whole.ravel().view(np.uint8).reshape(-1, 4)[:, :width]
    with wave.open(str(path), "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(data.tobytes())


@pytest.mark.parametrize("width, channels", [(1, 1), (2, 1), (3, 2), (4, 1)])
def test_a_sound_is_its_samples(capsys, tmp_path, width, channels):
    sound = 0.2 * walks(1, 3000, channels)[0].clip(-4, 4)
    write_wav(tmp_path / "a.wav", sound, width)
    read = scoring.read("a.wav").values[0]
    np.testing.assert_allclose(read, sound, atol=1.01 * 2.0 ** (1 - 8 * width))
    found = score(capsys, "a.wav")
    assert found["length_min"] == 3000 and len(found["channels"]) == channels and found["interval"] == "blocks"
    assert found["mu"] > 0.2


def test_spoken_digits_are_a_task_of_their_names(tmp_path):
    for i in range(20):
        write_wav(tmp_path / f"{i % 2}_anna_{i}.wav", 0.2 * walks(1, 50 + i, 1, seed=i)[0].clip(-4, 4))
    task = make({"name": "speech", "path": str(tmp_path)}, seed=1)
    assert task.classes == ("0", "1") and [len(part) for part in task.splits.values()] == [14, 3, 3]
    lengths = {int(n): int(label) for part in task.splits.values() for n, label in zip(part.lengths, part.labels, strict=True)}
    assert lengths == {50 + i: i % 2 for i in range(20)}


def test_images_are_rows_of_grey_pixels(capsys, tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (6, 16, 16), dtype=np.uint8)
    for i, one in enumerate(grey):
        Image.fromarray(one).save(tmp_path / f"{i}.png")
    found = scoring.read(str(tmp_path))
    assert {(one[:, 0] * 255).round().astype(np.uint8).tobytes() for one in found.values} == {one.tobytes() for one in grey}
    assert score(capsys, tmp_path, *SMALL)["kind"] == "folder of png"


def test_parquet_rows_can_be_sequences(capsys, tmp_path, data):
    pq.write_table(pa.table({"series": [one[:, 0].tolist() for one in data], "label": [0] * 12}), "lists.parquet")
    np.save("array.npy", data[:, :, 0])
    assert score(capsys, "lists.parquet", *SMALL)["mu"] == pytest.approx(score(capsys, "array.npy", *SMALL)["mu"], abs=0.02)
    pq.write_table(pa.table({"text": ["the cat sat on the mat " * 20, "a dog ran home " * 30], "label": [0, 1]}), "t.parquet")
    found = score(capsys, "t.parquet", *SMALL)
    assert found["kind"] == "parquet of texts" and found["length_max"] == 460


def test_a_data_set_of_the_hub_is_downloaded_once(capsys, tmp_path, monkeypatch, data):
    pq.write_table(long_table(data), tmp_path / "there.parquet")
    monkeypatch.setattr(fetch, "revision_of", lambda name: {"me/walks": "abc"}[name])
    monkeypatch.setattr(
        fetch, "hub_files", lambda name, revision: {"README.md": None, "train.parquet": None, "test.parquet": "d"}
    )
    asked = []
    monkeypatch.setattr(fetch, "fetch_hub", lambda *wanted: asked.append(wanted) or tmp_path / "there.parquet")
    found = score(capsys, "me/walks", *SMALL)
    assert asked == [("me/walks", "abc", "test.parquet", "d")]
    assert "test.parquet of the hub's me/walks at abc" in found["notes"] and found["sequences"] == 12


def test_an_archive_is_scored_as_the_folder_it_holds(capsys, tmp_path, data):
    with zipfile.ZipFile("mine.zip", "w") as out:
        for i, one in enumerate(data):
            np.save(f"{i:02}.npy", one[None])
            out.write(f"{i:02}.npy", f"data/{i:02}.npy")
    np.save("all.npy", data)
    found = score(capsys, "mine.zip", *SMALL)
    assert found["sequences"] == 12 and found["notes"][0] == "unpacked from mine.zip"
    assert found["mu"] == pytest.approx(score(capsys, "all.npy", *SMALL)["mu"], abs=1e-9)


# What is told


def test_the_answer_in_words(capsys, tmp_path, data):
    np.save("mine.npy", data)
    main(["score", "mine.npy", *SMALL, "--png", "curve.png"])
    out = capsys.readouterr().out
    assert "mine.npy: npy, 12 sequences of 200 steps, 2 channels" in out and "95 % interval" in out
    bars = [line.count("#") for line in out.splitlines() if line.strip().endswith("#")]
    assert len(bars) >= 10 and bars == sorted(bars, reverse=True)
    published = [line for line in out.splitlines() if "published" in line or "<- mine.npy" in line]
    values = [float(line.split()[0]) for line in published]
    assert len(values) == 7 and values == sorted(values)
    assert "there is no study here" in out and "strides to train a model of kappa 1" in out
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.size[0] > 500


def test_the_schedule_follows_the_law_of_held_steps(capsys, tmp_path):
    # A rotation by w a step: 1 - s_t = (1 - cos wt) / 2, so the mean squared error of holding r steps is known.
    w, t = 0.02, np.arange(2000)
    np.save("turn.npy", np.stack([np.cos(w * t), np.sin(w * t)], axis=1)[None])
    plan = score(capsys, "turn.npy", "--channels", "raw", "--tolerance", "0.1")["schedules"][0]
    for stride, delta in plan["delta"].items():
        held = np.mean([2 - 2 * np.cos(w * k) for k in range(int(stride))]) ** 0.5
        assert delta == pytest.approx(held, rel=0.05)
    assert plan["plan"] == [8, 4, 2, 1]
    strict = score(capsys, "turn.npy", "--channels", "raw", "--kappa", "10")["schedules"][0]
    assert strict["plan"] == [1] and strict["kappa"] == 10


def test_a_study_says_which_architecture_suits(capsys, tmp_path, data):
    tables = tmp_path / "results" / "mine" / "tables"
    tables.mkdir(parents=True)
    mu = {0.0: 0.0, 0.5: 0.5, 1.0: 1.0}
    mixtures = [
        {"system": "vdp", "eta": eta, "construction": "balanced", "mu": m, "n_sequences": 5, "status": "ok"}
        for eta, m in mu.items()
    ]
    gaps = [
        {"eta": eta, "construction": "balanced", "readout": "last", "horizon": 16, "model": model, "gap": gap + eta, "low": gap + eta - 0.1,
         "high": gap + eta + 0.1, "status": "ok"}
        for eta in mu for model, gap in (("s6", 0.2), ("s4d", 0.0))
    ]  # fmt: skip
    score_rows = [{"task": "smnist", "encoder": "raw", "mu": 0.3, "low": 0.2, "high": 0.4, "status": "ok"}]
    for name, rows in (("mixtures", mixtures), ("gap", gaps), ("score", score_rows)):
        write(name, rows, tables / f"{name}.parquet")
    np.save("mine.npy", data)
    found = score(capsys, "mine.npy", *SMALL)
    assert 0.25 < found["mu"] < 0.75
    assert [(row["model"], row["gap"], row["eta"]) for row in found["favoured"]] == [("s4d", 0.5, 0.5), ("s6", 0.7, 0.5)]
    assert found["study"] == "mine" and found["scores"][0]["task"] == "smnist" and found["alignment"] == []
    main(["score", "mine.npy", *SMALL])
    out = capsys.readouterr().out
    assert "s4d              0.500 (95 % interval 0.400 to 0.600)" in out and "smnist (raw, study mine)" in out


def test_a_constant_and_a_short_series_have_no_mu_and_a_reason(capsys, tmp_path):
    np.save("short.npy", walks(3, 40))
    found = score(capsys, "short.npy")
    assert found["mu"] is None and "shorter than min_separation + 2 = 130" in found["reason"] and found["schedules"] == []
    main(["score", "short.npy"])
    assert "mu undefined: every sequence is shorter" in capsys.readouterr().out


# Mistakes


def put(name, content):
    def make_file(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return make_file


def rows(*lines):
    steps = [f"{k},{math.sin(k):.3f}" for k in range(200)]
    return "\n".join(["time,x", *steps, *lines]) + "\n"


def saved(name, array):
    def make_file(folder):
        np.save(folder / name, array)
        return name

    return make_file


def torn_wav(folder):
    write_wav(folder / "torn.wav", np.zeros((500, 1)) + 0.1)
    whole = (folder / "torn.wav").read_bytes()
    (folder / "torn.wav").write_bytes(whole[:600])
    return "torn.wav"


def huge(folder):
    with open(folder / "huge.csv", "wb") as out:
        out.truncate(10**10)
    return "huge.csv"


MISTAKES = [
    (lambda folder: "absent.csv", "absent.csv: no such file or folder"),
    (put("a.csv", ""), "a.csv: empty"),
    (put("a.csv", "time,x\n"), "a.csv: has a header but no rows"),
    (put("a.csv", "time,x\n0,1\n"), "a.csv, line 2: 1 steps, at least 2 needed"),
    (put("a.csv", rows("200,")), "column x, line 202: missing or not finite (1 such)"),
    (put("a.csv", rows("200,-9999")), "column x, line 202: -9999 looks like a mark for missing"),
    (put("a.csv", rows("200,abc")), "column x, line 202: 'abc' is no number"),
    (put("a.csv", rows("150,0.1")), "column time, line 202: earlier than the step before"),
    (put("a.csv", rows("199,0.1")), "column time, line 202: same stamp as the step before"),
    (put("a.csv", rows().replace("x", "m\xe9").encode("latin-1")), "no UTF-8 text: save it as UTF-8"),
    (put("a.csv", "time,x\n" + "\n".join(f"{k},7" for k in range(200))), "constant: drop the sequence"),
    (put("a.txt", ""), "a.txt: empty"),
    (put("a.csv.gz", "x"), "a.csv.gz: is compressed: unpack it first"),
    (put("a.zip", "x"), "a.zip: no whole archive"),
    (put("a.txt", "x" * 5000), "holds one byte, over and over"),
    (put("a.npy", b"\x93NUMPY broken"), "a.npy: cannot be read as npy"),
    (saved("a.npy", np.array([1.0, np.nan, 2.0])), "sequence 0: not finite"),
    (put("a.parquet", b"PAR1 nothing"), "a.parquet: cannot be read"),
    (put("a.wav", b"RIFF nothing"), "a.wav: cannot be read as wav"),
    (torn_wav, "torn.wav: cannot be read as wav"),
    (put("a.png", b"\x89PNG\r\n\x1a\n broken"), "a.png: cannot be read"),
    (huge, "huge.csv: 10.0 GB, more than the 2.1 GB that are read at once"),
]  # fmt: skip


@pytest.mark.parametrize("make_file, said", MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_a_mistake_is_one_line(capsys, tmp_path, make_file, said):
    error = refused(capsys, make_file(tmp_path))
    assert said in error and len(error.splitlines()) == 1


def test_options_that_do_not_fit_are_told(capsys, tmp_path):
    np.save("mine.npy", walks(2, 300))
    assert "no column" in refused(capsys, put("a.csv", rows())(tmp_path), "--values", "y")
    assert "min_separation 8 is below max_lag 16" in refused(capsys, "mine.npy", "--min-separation", "8")
    assert "no such folder" in refused(capsys, "mine.npy", "--png", "none/a.png")
    assert "holds no study" in refused(capsys, "mine.npy", "--results", str(tmp_path))
