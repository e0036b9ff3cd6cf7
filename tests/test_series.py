"""Forecasting sets: splits, scale and windows as the benchmarks define them, and one clear line for what cannot be used."""

import datetime
import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from continuity.series import load, windows
from continuity.tasks.files import InputProblem

HOUR = 3600.0


def rows(n, step=HOUR, channels=("load", "heat"), seed=0):
    """{column: values} of a smooth series with dates."""
    t = np.arange(n)
    noise = np.random.default_rng(seed).standard_normal((len(channels), n))
    values = {name: np.sin(t / (5 + k)) + 0.1 * noise[k] for k, name in enumerate(channels)}
    start = datetime.datetime(2020, 1, 1)
    return {"date": [str(start + datetime.timedelta(seconds=step * i)) for i in range(n)]} | values


def write(folder, columns, name="set.csv"):
    path = folder / name
    lines = [",".join(columns)] + [",".join(map(str, line)) for line in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return {"name": "mine", "path": str(path)}


def problems(entry):
    with pytest.raises(InputProblem) as caught:
        load(entry)
    return caught.value.problems


def test_vic_elec_is_three_years_of_half_hours():
    found = load({"name": "vic_elec"})
    assert found.channels == ("Demand", "Temperature")
    assert (len(found.values), found.step) == (52608, 1800.0)
    assert found.values[0].tolist() == [4382.825174, 21.4]
    assert found.ends == (36825, 42087, 52608)


def test_keeping_every_second_row_doubles_the_step():
    half, hour = load({"name": "vic_elec"}), load({"name": "vic_elec", "every": 2})
    assert hour.step == 2 * half.step
    assert np.array_equal(hour.values, half.values[::2])


@pytest.mark.parametrize(("name", "step", "month"), [("ETTh1", 3600, 720), ("ETTm1", 900, 2880)])
def test_ett_is_split_into_12_4_and_4_months_of_30_days(tmp_path, name, step, month):
    entry = write(tmp_path, rows(21 * month, step)) | {"name": name}
    assert load(entry).ends == (12 * month, 16 * month, 20 * month)


def test_etth1_has_the_benchmarks_numbers_of_windows(tmp_path):
    series = load(write(tmp_path, rows(17420)) | {"name": "ETTh1"})
    counts = {horizon: [len(part) for part in windows(series, 336, horizon).values()] for horizon in (96, 720)}
    assert counts == {96: [8209, 2785, 2785], 720: [7585, 2161, 2161]}


def test_other_sets_are_split_into_shares(tmp_path):
    entry = write(tmp_path, rows(1003))
    assert load(entry).ends == (702, 803, 1003)
    assert load(entry | {"split": [0.5, 0.25, 0.25]}).ends == (501, 753, 1003)


def test_channels_are_scaled_on_the_training_part_alone(tmp_path):
    series = load(write(tmp_path, rows(400)))
    values = windows(series, 20, 5)["train"].values.double()
    train = values[: series.ends[0]]
    assert torch.allclose(train.mean(0), torch.zeros(2).double(), atol=1e-6)
    assert torch.allclose(train.std(0, unbiased=False), torch.ones(2).double(), atol=1e-6)
    changed = series.values.copy()
    changed[series.ends[0] :] += 100
    later = windows(type(series)(**vars(series) | {"values": changed}), 20, 5)["train"].values
    assert torch.equal(later[: series.ends[0]].double(), train)


def test_targets_cover_each_part_exactly_and_inputs_reach_one_length_back(tmp_path):
    series = load(write(tmp_path, rows(400)))
    parts = windows(series, 20, 5)
    for split, begin, end in (("train", 20, 280), ("validation", 280, 320), ("test", 320, 400)):
        part = parts[split]
        x, y, lengths = part.take(torch.arange(len(part)))
        assert x.shape == (len(part), 20, 2) and y.shape == (len(part), 5, 2) and lengths is None
        assert torch.equal(y[0, 0], part.values[begin]) and torch.equal(y[-1, -1], part.values[end - 1])
        assert torch.equal(x[0, -1], part.values[begin - 1])


def test_a_stride_keeps_every_so_manieth_window(tmp_path):
    series = load(write(tmp_path, rows(400)))
    every, fourth = windows(series, 20, 5)["test"], windows(series, 20, 5, {"test": 4})["test"]
    assert torch.equal(every.starts[::4], fourth.starts)
    assert fourth.first(3).starts.tolist() == [fourth.starts[i] for i in (0, len(fourth) // 3, 2 * len(fourth) // 3)]
    assert len(fourth.first(10_000)) == len(fourth)


def test_a_parquet_file_with_real_dates_reads_as_the_text(tmp_path):
    columns = rows(300)
    text = load(write(tmp_path, columns))
    dates = [datetime.datetime.fromisoformat(date) for date in columns["date"]]
    pq.write_table(pa.table(columns | {"date": pa.array(dates, pa.timestamp("ms"))}), tmp_path / "set.parquet")
    binary = load({"name": "mine", "path": str(tmp_path / "set.parquet")})
    assert np.allclose(text.values, binary.values) and text.step == binary.step == HOUR


def test_a_hub_set_is_asked_for_by_id_and_configuration(tmp_path, monkeypatch):
    asked = []

    def load_dataset(hub, name, split):
        asked.append((hub, name, split))
        return types.SimpleNamespace(data=types.SimpleNamespace(table=pa.table(rows(17420))))

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    found = load({"name": "ETTh1", "hub": "thuml/Time-Series-Library"})
    assert asked == [("thuml/Time-Series-Library", "ETTh1", "train")]
    assert found.ends == (8640, 11520, 14400)


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("no route to host\nwith more lines")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    (line,) = problems({"name": "ETTh1", "hub": "a/b"})
    assert line == "a/b, ETTh1: cannot be loaded (no route to host): check the id, or give a local file as path"


def put(column, at, value):
    def change(columns):
        columns[column] = list(columns[column])
        columns[column][at] = value

    return change


def swap(columns):
    columns["date"][10], columns["date"][11] = columns["date"][11], columns["date"][10]


def drop(columns):
    for name in columns:
        columns[name] = [value for i, value in enumerate(columns[name]) if i != 50]


def still(columns):
    columns["heat"] = [3.0] * 299 + [3.0001]


BAD = {
    "a missing value": (put("heat", 7, ""), "column heat, row 8: missing or not finite (1 such)"),
    "not a number": (put("heat", 7, "nan"), "column heat, row 8: missing or not finite (1 such)"),
    "a sentinel": (put("load", 3, -9999), "column load, row 4: -9999 looks like a mark for missing (1 such)"),
    "a stamp twice": (lambda c: put("date", 5, c["date"][4])(c), "row 6: same stamp as the row before (1 such)"),
    "stamps in disorder": (swap, "row 12: earlier than the row before (1 such)"),
    "a gap": (drop, "row 51: 7200 s after the row before, elsewhere 3600 s (1 gaps)"),
    "a channel that stands still": (still, "column heat does not change in the training part"),
    "text": (put("date", 9, "yesterday"), "first column date holds no dates"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_series_is_named_with_its_row_and_the_remedy(tmp_path, kind):
    change, wanted = BAD[kind]
    columns = rows(300)
    change(columns)
    lines = problems(write(tmp_path, columns))
    assert any(wanted in line for line in lines)
    assert all(str(tmp_path / "set.csv") in line and ": " in line and "\n" not in line for line in lines)


def test_all_problems_are_told_at_once(tmp_path):
    columns = rows(300)
    for kind in ("a sentinel", "a missing value", "a gap"):
        BAD[kind][0](columns)
    assert len(problems(write(tmp_path, columns))) == 3


def test_gaps_and_sentinels_pass_where_the_entry_says_so(tmp_path):
    columns = rows(300)
    drop(columns)
    put("load", 3, -9999)(columns)
    found = load(write(tmp_path, columns) | {"gaps": True, "sentinels": []})
    assert found.values[3, 0] == -9999 and found.step == HOUR


def test_a_series_too_short_for_input_plus_horizon_names_each_part(tmp_path):
    series = load(write(tmp_path, rows(200)))
    with pytest.raises(InputProblem) as caught:
        windows(series, 100, 50)
    assert caught.value.problems == [
        "set mine, train: 140 rows are too few for input 100 plus horizon 50: shorten them or give more rows",
        "set mine, validation: 120 rows are too few for input 100 plus horizon 50: shorten them or give more rows",
        "set mine, test: 140 rows are too few for input 100 plus horizon 50: shorten them or give more rows",
    ]


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"name": "vic_elect"}, "not among vic_elec: give a path"),
        ({"name": "vic_elec", "columns": ["Demnd"]}, "no column 'Demnd' beside the date 'Time'"),
        ({"name": "vic_elec", "columns": ["Date"]}, "column Date holds text, not numbers"),
        ({"name": "vic_elec", "every": 0}, "every is 0: give a whole number of rows from 1"),
        ({"name": "vic_elec", "split": [0.5, 0.5]}, "give months, or three positive shares"),
        ({"name": "vic_elec", "evry": 2}, "no option evry"),
        ({"name": "mine", "path": "/nowhere/at/all.csv"}, "/nowhere/at/all.csv: no such file: correct the path"),
    ],
)
def test_a_wrong_entry_is_one_line(entry, wanted):
    (line,) = problems(entry)
    assert wanted in line


def test_ett_needs_twenty_months(tmp_path):
    (line,) = problems(write(tmp_path, rows(1000)) | {"name": "ETTh1"})
    assert "1000 rows are fewer than 20 months of 30 days (14400 rows)" in line


def test_a_series_moves_to_the_device_where_it_fits_twice_over(tmp_path):
    part = windows(load(write(tmp_path, rows(200))), 20, 5)["train"]
    assert (part.device, part.near("meta", 2 * 200 * 2 * 4).device) == ("cpu", "meta")
    assert part.near("meta", 2 * 200 * 2 * 4 - 1) is part
    x, y, _ = part.near("meta", 1e9).take(torch.arange(3), "meta")
    assert (x.device.type, x.shape, y.shape) == ("meta", (3, 20, 2), (3, 5, 2))
