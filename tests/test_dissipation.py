"""The dissipation block against its inequality, its eigenvalue against LAPACK, and both forms against each other."""

from itertools import product

import pytest
import torch
from continuity import dissipation, native
from continuity.dissipation import (
    OUTPUTS,
    RULES,
    SUPPLIES,
    check_beta,
    free_scale,
    largest_eigenvalue,
    lmi_block,
    lmi_violation,
    scaled_violation,
    selective_violation,
    violating_share,
)
from continuity.scan import scan_plain


@pytest.fixture(autouse=True)
def one_thread_double():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=[True, False], ids=["numba", "torch"])
def compiled(request, monkeypatch):
    monkeypatch.setattr(native, "HAVE_NUMBA", request.param and native.HAVE_NUMBA)
    return request.param


def blocks(count, n=16, dtype=torch.float64):
    """Random diagonal blocks (a, b, c, d, p, beta), half of them deflated or nearly so at or near the top pole."""
    a = (torch.rand(count, n) ** 0.3).to(dtype)
    b, c, d = (torch.randn(count, n) / 2).to(dtype), torch.randn(count, n).to(dtype), torch.randn(count).to(dtype)
    p, beta = (2 * torch.rand(count, n)).to(dtype), (torch.rand(count) / 10).to(dtype)
    part = count // 8
    a[: 3 * part, 0] = 0.999
    near = torch.ones(part, n, dtype=dtype)
    near[:, 0] += (10.0 ** torch.randint(-16, -2, (part,))).to(dtype)
    c[:part, 0] = p[:part, 0] * b[:part, 0]
    c[part : 2 * part, 0] = (p * b)[part : 2 * part, 0] * near[:, 0]
    c[2 * part : 3 * part] = (p * b)[2 * part : 3 * part]
    a[3 * part : 4 * part] = a[3 * part : 4 * part, :1]
    p[3 * part : 4 * part] = 1
    return a, b, c, d, p, beta


def layer(batch=3, length=7, channels=5, n=4):
    """delta, A, B, C, D, p of a selective layer."""
    delta, A = 0.3 * torch.rand(batch, length, channels), -5 * torch.rand(channels, n)
    B, C = torch.randn(batch, length, n), torch.randn(batch, length, n)
    return delta, A, B, C, torch.rand(channels) / 2, torch.rand(channels, n) + 0.1


def with_gradients(function, tensors, **how):
    tensors = [x.clone().requires_grad_() for x in tensors]
    value = function(*tensors, **how)
    weights = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype).view(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), tensors, materialize_grads=True)]


def random_system(count, n=3):
    """Complex A, B, C, D and a positive definite P; many of the blocks are negative semidefinite, many are not."""
    draw = {
        name: torch.randn(count, *shape, dtype=torch.complex128) for name, shape in (("a", (n, n)), ("b", (n,)), ("c", (n,)))
    }
    root = torch.randn(count, n, n, dtype=torch.complex128)
    a = 0.5 * torch.rand(count, 1, 1) * draw["a"]
    d = 3 * torch.rand(count) + 1j * torch.randn(count)
    size = torch.rand(count, 1)
    return a, size * draw["b"], size * draw["c"], d, root @ root.mH + 0.1 * torch.eye(n), 0.05 * torch.rand(count)


def inequality(system, output, h, u):
    """V(h_k) - V(h_(k-1)) - Re <u, y> + beta |h_(k-1)|^2 by stepping the system."""
    a, b, c, d, p, beta = system
    after = (a @ h.unsqueeze(-1)).squeeze(-1) + b * u.unsqueeze(-1)
    y = (c * (after if output == "post" else h)).sum(-1) + d * u

    def stored(x):
        return (x.conj() * (p @ x.unsqueeze(-1)).squeeze(-1)).sum(-1).real / 2

    return stored(after) - stored(h) - (u.conj() * y).real + beta * h.abs().square().sum(-1)


# The block and its inequality


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_quadratic_form_of_the_block_is_the_inequality(output):
    system = random_system(2000)
    h, u = torch.randn(2000, 3, dtype=torch.complex128), torch.randn(2000, dtype=torch.complex128)
    z = torch.cat([h, u.unsqueeze(-1)], -1)
    block = lmi_block(*system, output=output, dense=True)
    form = (z.conj() * (block @ z.unsqueeze(-1)).squeeze(-1)).sum(-1).real / 2
    assert (form - inequality(system, output, h, u)).abs().max() < 1e-12 * form.abs().max()


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_block_is_negative_semidefinite_exactly_when_the_inequality_holds_for_all_states_and_inputs(output):
    system = random_system(4000)
    values, vectors = torch.linalg.eigh(lmi_block(*system, output=output, dense=True))
    worst = vectors[..., -1]
    violated = inequality(system, output, worst[:, :-1], worst[:, -1]) > 0
    assert torch.equal(violated, values[:, -1] > 0) and 0.05 < violated.double().mean() < 0.95
    kept = [x[~violated] for x in system]
    for _ in range(50):
        h = torch.randn(len(kept[0]), 3, dtype=torch.complex128)
        u = 10 ** torch.randn(len(kept[0])) * torch.randn(len(kept[0]), dtype=torch.complex128)
        assert (inequality(kept, output, h, u) <= 1e-12 * (1 + u.abs().square())).all()


def test_a_diagonal_block_is_the_dense_one():
    a, b, c, d, p, beta = blocks(50, 5)
    full = torch.diag_embed(a), b, c, d, torch.diag_embed(p), beta
    for output, supply in product(OUTPUTS, SUPPLIES):
        how = {"output": output, "supply": supply, "delta": torch.rand(50)}
        assert torch.allclose(lmi_block(a, b, c, d, p, beta, **how), lmi_block(*full, **how, dense=True))
        assert torch.allclose(lmi_violation(a, b, c, d, p, beta, **how), lmi_violation(*full, **how, dense=True), atol=1e-12)


def test_without_feed_through_an_output_read_before_the_update_is_never_passive():
    a, b, c, _, p, _ = blocks(500, 4)
    assert (lmi_violation(a, b, c, 0.0, p, output="pre") > 0).all()


def test_the_best_storage_of_one_mode_leaves_what_positive_realness_says():
    a, b, c = torch.rand(200, 1), torch.randn(200, 1), torch.randn(200, 1)
    p = (a * c / b).abs()
    schur = p * b * b - 2 * b * c + a**2 * (p * b - c) ** 2 / (p * (1 - a**2))
    product_ = b * c
    best = torch.where(product_ > 0, -2 * product_ / (1 + a), -2 * product_ / (1 - a))
    assert torch.allclose(schur, best)
    circle = torch.exp(1j * torch.linspace(0, torch.pi, 4001))
    response = (product_ * circle / (circle - a)).real.amin(1, keepdim=True)
    assert torch.allclose(best, -2 * response, rtol=1e-9)
    d = (best / 2).squeeze(-1)
    at_rest = lmi_violation(a, b, c, d + 1e-9, p), lmi_violation(a, b, c, d - 1e-6, p)
    assert at_rest[0].max() == 0 and (at_rest[1] > 0).all()


def test_only_a_supply_per_step_has_a_limit_on_fine_grids():
    delta, A, B, C, D, p = layer()
    expected = 2 * p * A, p * B.unsqueeze(2) - C.unsqueeze(2)
    for tiny in (1e-4, 1e-6):
        a, shrink, b = dissipation.one_step(tiny * torch.ones_like(delta), A, B, "zoh")
        c = C.unsqueeze(2)
        block = lmi_block(a, b, c, D, p, supply="delta", delta=tiny * torch.ones_like(delta)) / tiny
        assert (block.diagonal(dim1=-2, dim2=-1)[..., :-1] - expected[0]).abs().max() < 100 * tiny
        assert (block[..., :-1, -1] - expected[1]).abs().max() < 100 * tiny
        unit = lmi_block(a, b, c, D, p)
        assert (unit[..., :-1, -1] + c).abs().max() < 100 * tiny


def test_strictly_dissipative_storage_is_forgotten_at_its_rate():
    delta, A, B, C, _, p = layer(1, 60, 2, 4)
    beta = 0.9 * dissipation.feasible_beta(delta, A, p).min()
    states = [torch.randn(1, 2, 4)]
    for k in range(60):
        states.append(torch.exp(delta[:, k].unsqueeze(-1) * A) * states[-1])
    stored = torch.stack([(p * h.square()).sum((1, 2)) / 2 for h in states])
    assert (stored[1:] <= (1 - 2 * beta / p.max()) * stored[:-1]).all()


# The eigenvalue


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("output", OUTPUTS)
def test_the_arrowhead_root_is_lapacks_largest_eigenvalue(compiled, output, dtype, tolerance):
    system = blocks(8000, dtype=dtype)
    exact = torch.linalg.eigvalsh(lmi_block(*(x.double() for x in system), output=output))[:, -1]
    assert (lmi_violation(*system, output=output, clip=False) - exact).abs().max() < tolerance
    assert (lmi_violation(*system, output=output) - exact.clamp_min(0)).abs().max() < tolerance


def test_poles_that_hardly_carry_weight_and_all_but_coincide_are_no_trouble():
    count, n = 4000, 8
    e, s = torch.randn(count, n) - 2 * torch.rand(count, 1), 3 * torch.randn(count) - 4
    w = torch.randn(count, n) * 10.0 ** torch.randint(-20, 2, (count, n))
    top = e.argmax(1, keepdim=True)
    second = e.scatter(1, top, -99.0).argmax(1, keepdim=True)
    e[: count // 2] = e.scatter(1, second, e.gather(1, top) - 10.0 ** -torch.randint(3, 14, (count, 1)))[: count // 2]
    block = torch.diag_embed(torch.cat([e, s.unsqueeze(1)], 1))
    block[:, -1, :-1], block[:, :-1, -1] = w, w
    values, vectors = torch.linalg.eigh(block)
    e.requires_grad_()
    root = largest_eigenvalue(e, w, s)
    assert (root - values[:, -1]).abs().max() < 1e-10
    simple = values[:, -1] - values[:, -2] > 1e-2
    slope = torch.autograd.grad(root.sum(), e)[0]
    assert (slope - vectors[:, :-1, -1].square())[simple].abs().max() < 1e-9


def test_gradients_are_those_of_finite_differences(compiled):
    a, b, c, d, p, _ = blocks(8, 3)
    a = 0.3 + 0.6 * torch.rand(8, 3)
    for output, clip in product(OUTPUTS, (True, False)):
        value = lmi_violation(a, b, c, d, p, 1e-3, output=output, clip=False)
        far = value.abs() > 1e-3
        system = [x[far].clone().requires_grad_() for x in (a, b, c, d, p)]

        def function(*x, output=output, clip=clip):
            return lmi_violation(*x, 1e-3, output=output, clip=clip)

        assert torch.autograd.gradcheck(function, system, atol=1e-6)


@pytest.mark.parametrize(("rule", "supply"), list(product(RULES, SUPPLIES)))
def test_gradients_of_a_layer_are_those_of_finite_differences(compiled, rule, supply):
    tensors = [x.requires_grad_() for x in layer(1, 2, 2, 2)]

    def function(*x):
        return selective_violation(*x, 1e-3, discretization=rule, supply=supply, clip=False)

    assert torch.autograd.gradcheck(function, tensors, atol=1e-6)


def test_a_deflated_eigenvalue_has_the_gradient_of_its_pole(compiled):
    a, b, d, p = torch.tensor([0.9, 0.5]), torch.tensor([1.0, 0.3]), torch.tensor(1.0), torch.ones(2).requires_grad_()
    value = lmi_violation(a, b, torch.tensor([1.0, 0.2]), d, p, 0.2)
    assert torch.allclose(value, torch.tensor(0.9**2 - 1 + 0.4))
    assert torch.allclose(torch.autograd.grad(value, p)[0], torch.tensor([0.9**2 - 1, 0.0]))


def test_compliant_blocks_have_neither_value_nor_gradient(compiled):
    delta, A, B, C, _, p = layer()
    value, *slopes = with_gradients(selective_violation, (delta + 0.1, A - 1, B, C, torch.full((5,), 100.0), p))
    assert not value.any() and not any(x.any() for x in slopes)


# One form against the other


@pytest.mark.skipif(not native.HAVE_NUMBA, reason="needs numba")
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("output", OUTPUTS)
def test_compiled_and_plain_blocks_agree_under_broadcasting(output, logarithm, monkeypatch):
    a, b, c, d, p, beta = blocks(70, 5)
    a = torch.log(a.clamp_min(1e-3)) if logarithm else a
    for shapes in (
        (a, b, c, d, p, beta),
        (a, b, c, d[:1], p[0], beta),
        (a.view(7, 10, 5), b.view(7, 10, 5), c[:10], d[:10], p[:7].unsqueeze(1), beta[0]),
        (a[:10], b.view(7, 10, 5), c[:1], d[0], p[0], beta[:10]),
    ):
        results = []
        for numba in (True, False):
            monkeypatch.setattr(native, "HAVE_NUMBA", numba)
            assert dissipation.backend(*shapes) == ("numba" if numba else "torch")
            results.append(with_gradients(lmi_violation, shapes, output=output, logarithm=logarithm))
        for mine, plain in zip(*results, strict=True):
            assert mine.shape == plain.shape and torch.allclose(mine, plain, atol=1e-11)


@pytest.mark.skipif(not native.HAVE_NUMBA, reason="needs numba")
@pytest.mark.parametrize(("rule", "output", "supply"), list(product(RULES, OUTPUTS, SUPPLIES)))
def test_compiled_and_plain_layers_agree(rule, output, supply, monkeypatch):
    delta, A, B, C, D, p = layer(10, 3, 37, 4)
    for through, storage, clip in ((D, p, True), (torch.rand_like(delta), p[0], False)):
        results = []
        for numba in (True, False):
            monkeypatch.setattr(native, "HAVE_NUMBA", numba)
            how = {"beta": 1e-2, "discretization": rule, "output": output, "supply": supply, "clip": clip}
            results.append(with_gradients(selective_violation, (delta, A, B, C, through, storage), **how))
        for mine, plain in zip(*results, strict=True):
            assert torch.allclose(mine, plain, atol=1e-11)


def test_results_do_not_depend_on_the_number_of_threads():
    delta, A, B, C, D, p = layer(9, 5, 33, 4)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(with_gradients(selective_violation, (delta, A, B, C, D, p)))
    torch.set_num_threads(1)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_a_layers_block_is_that_of_the_step_its_scan_takes(rule):
    delta, A, B, C, D, p = layer(2, 1, 3, 4)
    h, u = torch.randn(2, 3, 4), torch.randn(2, 1, 3)
    y, after = scan_plain(u, delta, A, B, C, rule, h)
    y = y + D * u
    gain = (p * (after.square() - h.square())).sum(-1) / 2 - (u * y)[:, 0]
    a, _, b = dissipation.one_step(delta, A, B, rule)
    block = lmi_block(a, b, C.unsqueeze(2), D, p)[:, 0]
    z = torch.cat([h, u[:, 0].unsqueeze(-1)], -1)
    assert torch.allclose((z * (block @ z.unsqueeze(-1)).squeeze(-1)).sum(-1) / 2, gain)
    assert torch.allclose(
        selective_violation(delta, A, B, C, D, p, discretization=rule, clip=False)[:, 0], torch.linalg.eigvalsh(block)[..., -1]
    )


def test_short_steps_keep_their_digits_in_float32_by_logarithms(compiled):
    z = -torch.full((1, 1), 1e-5)
    exact = -torch.expm1(2 * z).item()
    for d in (0.0, 1.0):
        system = [torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([d]), torch.ones(1)]
        by_log = -lmi_violation(z.float(), *(x.float() for x in system), logarithm=True, clip=False).double()
        if d:
            assert abs(by_log / exact - 1) < 1e-6
    by_a = -lmi_violation(z.float().exp(), *(x.float() for x in system), clip=False).double()
    assert abs(by_a / exact - 1) > 1e-4


# Metrics that no rescaling can game


def rescaled(delta, A, B, C, D, p, r=0.03, s=0.001):
    return delta, A, r * B, s * C / r, s * D, p


def test_a_rescaling_that_leaves_the_function_unchanged_lowers_the_published_metric_only():
    quantities = layer(4, 9, 5, 4)
    violation, other = selective_violation(*quantities).mean(), selective_violation(*rescaled(*quantities)).mean()
    assert other < 0.1 * violation
    results = []
    for delta, A, B, C, D, p in (quantities, rescaled(*quantities)):
        q = free_scale(delta, A, B, C, p) * p
        results.append((scaled_violation(delta, A, B, C, D, q), selective_violation(delta, A, B, C, D, q)))
    assert torch.allclose(results[0][0], results[1][0])
    assert violating_share(results[0][1]) == violating_share(results[1][1]) > 0


def test_scaled_blocks_have_a_diagonal_within_one():
    delta, A, B, C, D, p = layer()
    a, _, b = dissipation.one_step(delta, A, B, "zoh")
    block = lmi_block(a, b, C.unsqueeze(2), D, p)
    scale = torch.cat(
        [p * (1 - a * a), ((p * b * b).sum(-1) + 2 * (C.unsqueeze(2) * b).abs().sum(-1) + 2 * D).unsqueeze(-1)], -1
    ).rsqrt()
    scaled = scale.unsqueeze(-1) * block * scale.unsqueeze(-2)
    assert (scaled.diagonal(dim1=-2, dim2=-1).abs() <= 1 + 1e-12).all()
    expected = torch.linalg.eigvalsh(scaled)[..., -1]
    assert torch.allclose(scaled_violation(delta, A, B, C, D, p, clip=False), expected, atol=1e-9)


# Bad input


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: lmi_violation(torch.eye(3), *x[1:]), "pass its diagonal"),
        (lambda x: lmi_violation(2 * x[0], *x[1:]), "stable"),
        (lambda x: lmi_violation(0 * x[0] + 0.1, *x[1:], logarithm=True), "stable"),
        (lambda x: lmi_violation(*x[:4], -x[4]), "p must not be negative"),
        (lambda x: lmi_violation(*x, -1.0), "beta must not be negative"),
        (lambda x: lmi_violation(x[0], x[1][:2], *x[2:]), "one last size N"),
        (lambda x: lmi_violation(*x, output="after"), "choose one of post, pre"),
        (lambda x: lmi_violation(*x, supply="step"), "choose one of unit, delta"),
        (lambda x: lmi_violation(*x, supply="delta"), "needs delta"),
        (lambda x: lmi_violation(*x, dense=True), "as matrices"),
        (lambda x: lmi_violation(x[0], x[1] * 1j, *x[2:]), "pass dense=True"),
        (lambda x: selective_violation(torch.ones(1, 1, 1), torch.ones(1, 3), x[1].view(1, 1, 3), x[2].view(1, 1, 3), None, x[4]), "A must be negative"),
        (lambda x: selective_violation(torch.ones(1, 1, 2), -torch.ones(1, 3), x[1].view(1, 1, 3), x[2].view(1, 1, 3), None, x[4]), "do not belong together"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(call, said):
    system = torch.rand(3), torch.randn(3), torch.randn(3), torch.tensor(0.0), torch.ones(3)
    with pytest.raises(ValueError) as caught:
        call(system)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_beta_beyond_the_loss_of_a_step_names_the_floor_it_causes():
    delta, A, B, C, _, p = layer()
    room = dissipation.feasible_beta(delta, A, p).min().item()
    check_beta(delta, A, p, 0.99 * room)
    with pytest.raises(ValueError) as caught:
        check_beta(delta, A, p, room + 0.1)
    assert "stays at or above 0.2" in str(caught.value)
    least = selective_violation(delta, A, 0 * B, 0 * C, None, p, room + 0.1).max().item()
    assert least == pytest.approx(0.2)
