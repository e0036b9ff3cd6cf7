"""The selective scan: compiled loop against the written-out recurrence, its gradients, its memory, its limits."""

import numpy as np
import pytest
import torch
from continuity import native
from continuity.discretization import RULES
from continuity.lti_scan import lti_scan, scan_by_doubling
from continuity.scan import backend, scan_plain, selective_scan


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def inputs(batch, length, channels, states, dtype=torch.float64, largest=2.0):
    u, B, C = (
        torch.randn(*shape, dtype=dtype)
        for shape in ((batch, length, channels), (batch, length, states), (batch, length, states))
    )
    delta = largest * torch.rand(batch, length, channels, dtype=dtype)
    A = -torch.rand(channels, states, dtype=dtype) * 4
    return [x.requires_grad_() for x in (u, delta, A, B, C)]


def by_hand(u, delta, A, B, C, rule):
    """The recurrence in numpy with one scalar state at a time and numpy's own exponentials."""
    batch, length, channels = u.shape
    y = np.zeros(u.shape)
    for b, d, n in np.ndindex(batch, channels, A.shape[1]):
        h = 0.0
        for k in range(length):
            step, drive = delta[b, k, d], delta[b, k, d] * B[b, k, n] * u[b, k, d]
            if rule == "averaged":
                step = 0.0 if k == 0 else (delta[b, k - 1, d] + step) / 2
                drive = 0.0 if k == 0 else (delta[b, k - 1, d] * B[b, k - 1, n] * u[b, k - 1, d] + drive) / 2
            z = step * A[d, n]
            if rule == "bilinear":
                h = (1 + z / 2) / (1 - z / 2) * h + drive / (1 - z / 2)
            elif rule == "euler":
                h = np.exp(z) * h + drive
            else:
                h = np.exp(z) * h + (np.expm1(z) / z if z else 1.0) * drive
            y[b, k, d] += C[b, k, n] * h
    return y


@pytest.mark.parametrize("rule", RULES)
def test_every_form_of_the_scan_equals_the_recurrence_by_hand(rule):
    arguments = inputs(2, 7, 3, 2)
    hand = by_hand(*(x.detach().numpy() for x in arguments), rule)
    for y in (selective_scan(*arguments, discretization=rule), scan_plain(*arguments, discretization=rule)[0]):
        np.testing.assert_allclose(y.detach().numpy(), hand, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 63, 100, 1021])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rule", RULES)
def test_the_compiled_scan_and_its_gradients_equal_the_plain_one(rule, dtype, length):
    arguments = inputs(2, length, 3, 2, dtype)
    exact = [x.detach().double().requires_grad_() for x in arguments]
    y, last = selective_scan(*arguments, discretization=rule, return_state=True)
    reference, reference_last = scan_plain(*exact, discretization=rule)
    weight = torch.randn_like(reference)
    ours = torch.autograd.grad((y * weight).sum() + last.sum(), arguments, materialize_grads=True)
    theirs = torch.autograd.grad((reference * weight).sum() + reference_last.sum(), exact, materialize_grads=True)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for mine, true in zip((y, last, *ours), (reference, reference_last, *theirs), strict=True):
        assert (mine - true).abs().max() <= tolerance * max(1.0, true.abs().max().item())


@pytest.mark.parametrize("rule", RULES)
def test_the_compiled_scan_passes_gradcheck(rule):
    assert torch.autograd.gradcheck(lambda *x: selective_scan(*x, discretization=rule), inputs(1, 5, 2, 2))


@pytest.mark.parametrize("rule", ["zoh", "bilinear", "euler"])
def test_a_scan_in_two_pieces_equals_one(rule):
    u, delta, A, B, C = inputs(2, 50, 3, 4)
    whole, end = selective_scan(u, delta, A, B, C, discretization=rule, return_state=True)
    first, state = selective_scan(u[:, :20], delta[:, :20], A, B[:, :20], C[:, :20], discretization=rule, return_state=True)
    second, last = selective_scan(
        u[:, 20:], delta[:, 20:], A, B[:, 20:], C[:, 20:], discretization=rule, state=state, return_state=True
    )
    assert torch.allclose(torch.cat([first, second], 1), whole, atol=1e-12) and torch.allclose(last, end, atol=1e-12)


def test_results_do_not_depend_on_the_number_of_threads():
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        arguments = inputs(5, 200, 8, 4, torch.float32)
        y = selective_scan(*arguments)
        results.append([y, *torch.autograd.grad(y.sum(), arguments)])
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_backward_keeps_no_tensor_of_all_states():
    batch, length, channels, states = 2, 512, 16, 8
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        selective_scan(*inputs(batch, length, channels, states, torch.float32))
    assert backend(torch.zeros(1), torch.zeros(1)) == "torch" or max(kept) <= batch * length * channels * states / 8


def test_without_numba_the_scan_is_the_same(monkeypatch):
    arguments = inputs(2, 40, 3, 4)
    compiled = selective_scan(*arguments)
    monkeypatch.setattr(native, "HAVE_NUMBA", False)
    assert backend(*arguments[:2]) == "torch"
    assert torch.allclose(selective_scan(*arguments), compiled, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("largest", [0.0, 1e-9, 1e4, 1e9])
def test_tiny_and_huge_steps_stay_finite(rule, largest):
    arguments = inputs(1, 20, 3, 4, torch.float32, largest)
    y = selective_scan(*arguments, discretization=rule)
    grads = torch.autograd.grad(y.sum(), arguments)
    assert all(torch.isfinite(x).all() for x in (y, *grads))


def test_a_state_without_decay_is_a_sum():
    u, delta, A, B, C = inputs(1, 30, 2, 3)
    y = selective_scan(u, delta, torch.zeros_like(A), B, C)
    total = ((delta * u).unsqueeze(-1) * B.unsqueeze(2)).cumsum(1)
    assert torch.allclose(y, (total * C.unsqueeze(2)).sum(-1), atol=1e-12)


def test_nan_reaches_the_output_and_never_the_past():
    u, *rest = (x.detach() for x in inputs(1, 40, 2, 3, torch.float32))
    u[0, 25] = torch.nan
    y = selective_scan(u, *rest)
    assert torch.isfinite(y[:, :25]).all() and torch.isnan(y[:, 25:]).all()


def test_autocast_leaves_the_scan_in_float32():
    arguments = [x.detach() for x in inputs(1, 30, 2, 3, torch.float32)]
    with torch.autocast("cpu", torch.bfloat16):
        inside = selective_scan(*arguments)
    assert inside.dtype == torch.float32 and torch.equal(inside, selective_scan(*arguments))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"A": torch.ones(5, 4)}, "A of shape"),
        ({"B": torch.ones(2, 9, 4)}, "B of shape"),
        ({"D": torch.ones(2)}, "D of shape"),
        ({"u": torch.ones(2, 0, 3)}, "at least one time step"),
        ({"u": torch.ones(2, 3)}, "u (B, L, D)"),
        ({"discretization": "zho"}, "choose one of"),
    ],
)
def test_bad_arguments_are_one_clear_line(change, said):
    good = dict(
        u=torch.ones(2, 8, 3), delta=torch.ones(2, 8, 3), A=-torch.ones(3, 4), B=torch.ones(2, 8, 4), C=torch.ones(2, 8, 4)
    )
    with pytest.raises(ValueError) as caught:
        selective_scan(**{**good, **change})
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_the_time_invariant_scan_and_its_gradients_equal_the_recurrence(length):
    log_a = torch.complex(-torch.rand(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)).requires_grad_()
    x = torch.randn(2, length, 6, dtype=torch.float64, requires_grad=True)
    h, states = torch.zeros(2, 3, dtype=torch.complex128), []
    for sample in torch.complex(x[..., :3], x[..., 3:]).unbind(1):
        h = torch.exp(log_a) * h + sample
        states.append(torch.cat([h.real, h.imag], -1))
    expected = torch.stack(states, 1)
    weight = torch.randn_like(expected)
    true = torch.autograd.grad((expected * weight).sum(), (log_a, x), materialize_grads=True)
    for form in (lti_scan, scan_by_doubling):
        y = form(log_a, x)
        grads = torch.autograd.grad((y * weight).sum(), (log_a, x), materialize_grads=True)
        for mine, reference in zip((y, *grads), (expected, *true), strict=True):
            assert (mine - reference).abs().max() < 1e-12
