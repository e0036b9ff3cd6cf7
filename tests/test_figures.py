"""Figures: drawn for what a study holds, the same bytes for the same tables, readable for every kind of colour vision."""

import itertools
import re

import numpy as np
import pytest
import synthetic
from continuity import alignment, catalog, figures, tables
from continuity.layers import LAYER_MODULES


def _study(folder, **options):
    made = synthetic.write(folder, **options)
    files = catalog.table_files(made)
    if "forecast" in files:
        tables.write("gap", catalog.aggregate("gap", files), made / "gap.parquet")
        if "mixtures" in files:
            rows = alignment.align(catalog.open_tables(made).sql("FROM advantage").to_arrow_table(), draws=100)
            tables.write("alignment", rows, made / "alignment.parquet")
    return catalog.open_tables(made)


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    return _study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def drawn(connection, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return {name: figures.draw(name, connection, folder / name) for name in figures.FIGURES}


def test_every_figure_is_drawn_wide_narrow_and_as_pixels(drawn):
    for name, paths in drawn.items():
        assert [path.name for path in paths] == [f"{name}.svg", f"{name}.narrow.svg", f"{name}.png"]
        assert all(path.stat().st_size > 5000 for path in paths)


def test_narrow_figures_fit_a_phone(drawn):
    for paths in drawn.values():
        width = float(re.search(r'width="([\d.]+)pt"', paths[1].read_text()).group(1))
        assert width <= 260


def test_no_figure_is_large_or_dated(drawn):
    for paths in drawn.values():
        text = paths[0].read_text()
        assert len(text) < 500_000
        assert "<dc:date>" not in text


def test_the_same_tables_give_the_same_bytes(connection, drawn, tmp_path):
    for before, after in zip(drawn["benchmark"], figures.draw("benchmark", connection, tmp_path / "benchmark"), strict=True):
        assert before.read_bytes() == after.read_bytes()


def test_a_figure_without_its_tables_is_not_drawn_and_an_old_one_goes(tmp_path):
    connection = catalog.open_tables(synthetic.write(tmp_path / "study", leave_out=("benchmark",)))
    (tmp_path / "benchmark.svg").write_text("old")
    assert figures.draw("benchmark", connection, tmp_path / "benchmark") == []
    assert not (tmp_path / "benchmark.svg").exists()


def test_a_table_of_failures_only_draws_nothing(tmp_path):
    row = {"task": "t", "model": "s4d", "seed": 0, "accuracy": None, "status": "diverged", "reason": "loss not finite"}
    tables.write("benchmark", [row], tmp_path / "benchmark.parquet")
    assert figures.draw("benchmark", catalog.open_tables(tmp_path), tmp_path / "benchmark") == []


def test_one_seed_without_intervals_is_still_drawn(tmp_path):
    rows = [row for row in synthetic.benchmark(np.random.default_rng(0)) if row["seed"] == 0]
    tables.write("benchmark", rows, tmp_path / "benchmark.parquet")
    assert len(figures.draw("benchmark", catalog.open_tables(tmp_path), tmp_path / "benchmark")) == 3


def test_a_study_of_one_model_without_controls_or_selection_is_drawn(tmp_path):
    content = synthetic.rows()
    for name in ("convergence", "refinement", "diagnosis"):
        only = {"s4", "s4d"} if name != "convergence" else {"s6"}
        rows = [row | ({"hold_error": None} if name == "refinement" else {}) for row in content[name] if row["model"] in only]
        tables.write(name, rows, tmp_path / f"{name}.parquet")
    connection = catalog.open_tables(tmp_path)
    for name in ("convergence", "refinement", "diagnosis"):
        assert len(figures.draw(name, connection, tmp_path / name)) == 3


def test_no_label_leaves_the_page(connection, tmp_path, monkeypatch):
    """Long names of systems, controls and colour bars stay within the figure, wide and narrow, at the PNG's resolution."""
    drawn = []
    monkeypatch.setattr(figures, "_save", lambda figure, svg, png=None: drawn.append(figure))
    names = ("convergence", "diagnosis", "refinement", "curriculum", "dissipation", "stability")
    for name in names:
        figures.draw(name, connection, tmp_path / name)
    assert len(drawn) == 2 * len(names)
    for figure in drawn:
        figure.get_layout_engine().execute(figure)
        figure.set_layout_engine("none")
        figure.set_dpi(figures.PNG_DPI)
        width, height = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width + 0.02 and box.y1 <= height + 0.02


def test_other_models_and_the_published_construction_alone_are_drawn_too(tmp_path):
    made = synthetic.write(tmp_path, leave_out=("forecast", "mixtures", "convergence"))
    names = {"s4d": "mine", "s6": "o'yours"}
    content = synthetic.rows()
    for name in ("forecast", "mixtures"):
        rows = [row | {"construction": "published"} for row in content[name]]
        rows = [row | {"model": names.get(row["model"], row["model"])} if "model" in row else row for row in rows]
        tables.write(name, rows, made / f"{name}.parquet")
    connection = catalog.open_tables(made)
    rows = alignment.align(connection.sql("FROM advantage").to_arrow_table(), draws=100)
    assert {"mine-o'yours", "mine-transformer", "o'yours-transformer"} <= {row["pair"] for row in rows}
    tables.write("alignment", rows, made / "alignment.parquet")
    connection = catalog.open_tables(made)
    for name in ("study", "mixtures", "forecast", "alignment"):
        assert len(figures.draw(name, connection, tmp_path / name)) == 3


def test_an_unknown_figure_is_refused(connection, tmp_path):
    with pytest.raises(ValueError, match="no figure 'scores'"):
        figures.draw("scores", connection, tmp_path / "x")


def test_a_users_name_is_no_mathematics_and_is_shortened():
    assert figures.label("$x^2$") == r"\$x^2\$"
    assert len(figures.label("a" * 80)) == 26


def test_series_of_one_figure_differ_in_colour_and_in_marker():
    architectures = ["s4d", "s6", "transformer", "mamba", "s5", "mine", "yours", "theirs"]
    looks = [figures.series(name, architectures) for name in architectures]
    for (colour, marker), (other_colour, other_marker) in itertools.combinations(looks, 2):
        assert (colour, marker) != (other_colour, other_marker)
    assert len({marker for _, marker in looks}) == len(looks)


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_all_layers_in_one_figure_differ_in_colour_or_marker():
    names = list(LAYER_MODULES)
    assert len({figures.series(name, names) for name in names}) == len(names) >= 12


@pytest.mark.parametrize("narrow", [False, True])
def test_a_legend_of_many_series_covers_none_of_them(narrow):
    figure, (axis, _) = figures._panels(2, narrow)
    for k in range(figures.ROOM + 4):
        axis.plot([0, 1], [0, k], label=f"series {k}")
    figures._legend(axis)
    figure.canvas.draw()
    box, panel = axis.get_legend().get_window_extent(), axis.get_window_extent()
    assert not box.overlaps(panel.shrunk(0.98, 0.98))
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 + 1


def test_ink_is_legible_on_white():
    assert 1.05 / (_luminance(figures.INK) + 0.05) > 12
