"""A probe finds the order that a module is known to have, and says in one line what is wrong with a bad one."""

import json

import numpy as np
import pytest
import torch
from continuity import probe
from continuity.layers import build
from continuity.probe import hold_error, load_factory, main_result, refined, smooth_inputs
from scipy.stats import spearmanr
from torch import nn

ONE_EIGHTH = 1 / 8


class Integral(nn.Module):
    """Running integral of the input: left-held (order 1) or trapezoidal (order 2)."""

    def __init__(self, rule="held"):
        super().__init__()
        self.rule = rule

    def forward(self, u, dt=1.0):
        before = u[:, :-1] if self.rule == "held" else (u[:, :-1] + u[:, 1:]) / 2
        return nn.functional.pad(before.double().cumsum(1) * dt, (0, 0, 1, 0))


class Sum(nn.Module):
    """Running sum, which has no time scale: halving the step doubles it."""

    def forward(self, u):
        return u.cumsum(1)


class Parity(nn.Module):
    """Told the step, and yet a function of the number of samples: nothing to converge to."""

    def forward(self, u, step_scale=1.0):
        angle = 100.0 * step_scale**0.5
        return u * np.sin(37.0 * angle)


class Pointwise(nn.Module):
    def forward(self, u):
        return torch.tanh(u)


class Answers(nn.Module):
    """Returns whatever it was given to return."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, u):
        return self.answer(u)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def inputs():
    return smooth_inputs(12, 1025, 4)


@pytest.mark.parametrize("rule, order", [("held", 1), ("trapezoid", 2)])
def test_an_integral_has_the_order_of_its_rule(inputs, rule, order):
    found = probe.probe(Integral(rule), inputs, "dt")
    assert found.verdict == "continuous"
    assert found.order == pytest.approx(order, abs=0.1) and found.low < found.order < found.high
    assert found.orders == pytest.approx((order, order), abs=0.15)


def test_a_sum_has_no_time_scale_and_order_minus_one(inputs):
    found = probe.probe(Sum(), inputs)
    assert found.verdict == "no_time_scale" and found.order == pytest.approx(-1, abs=0.1)
    assert "takes no sampling step" in found.sentence


def test_a_module_that_needs_no_step_and_converges_is_continuous(inputs):
    found = probe.probe(Answers(lambda u: u.cumsum(1) / u.shape[1]), inputs)
    assert found.verdict == "continuous" and "does not use the sampling step" in found.sentence


def test_a_module_told_the_step_that_does_not_converge_is_not_continuous(inputs):
    found = probe.probe(Parity(), inputs, "step_scale")
    assert found.verdict == "not_continuous" and found.high < 0.5


def test_a_pointwise_module_is_continuous_at_every_rate(inputs):
    found = probe.probe(Pointwise(), inputs)
    assert found.verdict == "continuous" and "rounding" in found.sentence and max(found.drift) == 0


@pytest.mark.parametrize("name", ["s4d", "s5", "s6"])
def test_layers_with_a_time_scale_are_first_order(name):
    found = probe.probe(build(name, 16), smooth_inputs(12, 1025, 16), "auto", finest_scale=ONE_EIGHTH)
    assert found.step_scale_arg == "step_scale" and found.verdict == "continuous"
    assert 0.85 < found.order < 1.15


def test_a_transformer_without_a_step_rule_has_no_time_scale():
    found = probe.probe(build("transformer", 16), smooth_inputs(8, 257, 16), "auto", finest_scale=ONE_EIGHTH)
    assert found.verdict == "no_time_scale" and "ignores step_scale" in found.sentence


def test_a_readout_of_the_whole_sequence_is_measured_too(inputs):
    class Last(Integral):
        def forward(self, u, dt=1.0):
            return super().forward(u, dt)[:, -1, :2]

    found = probe.probe(Last(), inputs, "dt")
    assert found.verdict == "continuous" and found.order == pytest.approx(1, abs=0.25)


def test_one_sequence_gives_an_order_without_an_interval(inputs):
    found = probe.probe(Integral(), inputs[:1], "dt").to_json()
    assert found["verdict"] == "continuous" and found["low"] is None and found["high"] is None


def test_white_noise_and_constant_outputs_leave_it_undetermined(inputs):
    noise = np.random.default_rng(0).standard_normal(inputs.shape)
    assert probe.probe(Integral(), noise, "dt").verdict == "undetermined"
    assert probe.probe(Answers(torch.zeros_like), inputs).verdict == "undetermined"


def test_hold_error_of_unit_vectors_is_the_task_metrics():
    angle = np.cumsum(np.full((1, 4001), 0.05), 1)
    rotating = np.stack([np.cos(angle), np.sin(angle)], -1)
    similarity = (1 + np.cos(0.05 * np.arange(8))) / 2
    for r, delta in zip((1, 2, 4, 8), hold_error(rotating)[0], strict=True):
        assert delta == pytest.approx(2 * np.sqrt(np.mean(1 - similarity[:r])), abs=1e-9)


@pytest.mark.parametrize("name", ["s4d", "s6"])
def test_what_holding_the_input_does_to_a_model_is_kappa_times_what_it_does_to_the_input(name):
    layer, drift, delta, kappas = build(name, 8), [], [], []
    rng, time = np.random.default_rng(0), np.linspace(0, 1, 513)[:, None]
    for periods in (1, 2, 4, 8, 16, 32):
        waves = np.sin(2 * np.pi * periods * time + rng.uniform(0, 2 * np.pi, (6, 1, 8)))
        walk = np.cumsum(rng.standard_normal((6, 513, 8)), 1)
        for inputs in (waves, walk * np.exp(-periods * time)):
            found = probe.probe(layer, inputs.astype(np.float32), "step_scale")
            drift += found.hold_drift
            delta += found.hold_error[1:]
            kappas.append(found.kappa)
            assert found.kappa_low < found.kappa < found.kappa_high
    assert spearmanr(drift, delta).statistic >= 0.98
    assert 0.5 < min(kappas) and max(kappas) < 1.7


def test_a_module_that_copies_its_input_has_kappa_near_one():
    inputs = smooth_inputs(12, 1025, 4)
    found = probe.probe(Answers(lambda u: 3 * u), inputs)
    assert found.hold_drift[0] == pytest.approx(found.hold_error[1], rel=0.05)
    assert found.kappa == pytest.approx(1, abs=0.05)


def test_refined_inputs_keep_the_originals_and_lie_on_lines_between():
    inputs = np.array([[[0.0], [4.0], [2.0]]])
    assert refined(inputs, 4)[0, :, 0].tolist() == [0, 1, 2, 3, 4, 3.5, 3, 2.5, 2]


def test_module_is_left_as_it_was(inputs):
    class Noisy(Integral):
        def forward(self, u, dt=1.0):
            return nn.functional.dropout(super().forward(u, dt), training=self.training)

    module = Noisy().train()
    assert probe.probe(module, inputs, "dt").verdict == "continuous" and module.training


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda u: u[:, :-1], "not to"),
        (lambda u: u[0], "not to"),
        (lambda u: (u, u), "returned a tuple"),
        (lambda u: u / 0, "not finite at stride 1"),
        (lambda u: u[..., 0], "one number a step"),
        (lambda u: torch.complex(u, u), "complex"),
        (lambda u: u + torch.rand(()), "another output"),
        (lambda u: u.reshape(-1, 1025, 4), "stride 2"),
        (lambda u: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_bad_module_is_one_clear_line(inputs, answer, words):
    with pytest.raises(ValueError, match=words) as error:
        probe.probe(Answers(answer), inputs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(strides=(1, 2)), "at least three strides"),
        (dict(strides=(1, 3, 4)), "divide"),
        (dict(strides=(2, 4, 8)), "start at 1"),
        (dict(inputs=np.zeros((2, 20, 1))), "too short"),
        (dict(inputs=np.zeros((20, 1))), r"must be \(B, L, D\)"),
        (dict(inputs=np.full((2, 65, 1), np.nan)), "NaN"),
        (dict(step_scale_arg="step"), "takes no argument 'step': its forward has u, dt"),
    ],
)
def test_bad_arguments_are_one_clear_line(inputs, change, words):
    with pytest.raises(ValueError, match=words) as error:
        probe.probe(Integral(), **(dict(inputs=inputs) | change))
    assert "\n" not in str(error.value)


FACTORIES = """
import torch
from torch import nn

class Identity(nn.Module):
    def forward(self, u, step_scale=1.0):
        return torch.cumsum(u, 1) * step_scale

ready = Identity()
number = 3

def make():
    return Identity()

def wrong():
    return 4

def broken():
    raise RuntimeError("no\\nweights")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my models").mkdir()
    (tmp_path / "probe_models.py").write_text(FACTORIES)
    (tmp_path / "my models" / "copy.py").write_text(FACTORIES)
    (tmp_path / "probe_quits.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "probe_torn.py").write_text("import torch\nx = (\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_factories_load_from_the_folder_one_stands_in(folder):
    for spec in (
        "probe_models:make",
        "probe_models:Identity",
        "probe_models:ready",
        "my models/copy.py:make",
        f"{folder}/my models/copy.py:make",
    ):
        assert type(load_factory(spec)).__name__ == "Identity"


@pytest.mark.parametrize(
    "spec, words",
    [
        ("probe_models", "write module:function"),
        (":make", "write module:function"),
        ("no_such:make", "cannot import no_such"),
        ("probe_models:nothing", "has no 'nothing': it defines Identity, ready, make"),
        ("probe_models:number", "is a int"),
        ("probe_models:wrong", "made a int"),
        ("probe_models:broken", "RuntimeError: no weights"),
        ("probe_torn:make", "cannot import probe_torn"),
        ("probe_quits:make", "SystemExit"),
        ("absent.py:make", "no such file"),
    ],
)
def test_a_bad_factory_is_one_clear_line(folder, spec, words):
    with pytest.raises(ValueError, match=words) as error:
        load_factory(spec)
    assert "\n" not in str(error.value)


def test_main_result_is_ready_for_json(folder):
    rough = np.random.default_rng(0).standard_normal((4, 200, 2)).astype(np.float32)
    for inputs in (None, rough):
        result = main_result("probe_models:make", inputs)
        assert json.loads(json.dumps(result, allow_nan=False)) == result
        assert result["verdict"] == "continuous" and result["order"] == pytest.approx(1, abs=0.2)
    thinned = main_result("probe_models:make", rough, refine=False)
    assert thinned["verdict"] == "undetermined" and "at random" in thinned["sentence"]
