"""The task metric against closed forms and against a direct sum over pairs."""

import math

import numpy as np
import pytest
from continuity import lift, metric, pairs
from continuity.metric import Similarity, fit_lift, shuffled, task_continuity, task_continuity_stream
from scipy.special import hyp2f1

LAGS = np.arange(1, 17)


def direct_sum(sequences, max_lag, min_separation, max_separation):
    """mu_t by a plain loop over every pair of every sequence."""
    near, counts, far = np.zeros(max_lag + 1), np.zeros(max_lag + 1), []
    for u in sequences:
        for k in range(len(u)):
            for j in range(k, len(u)):
                lag, norms = j - k, np.linalg.norm(u[k]) * np.linalg.norm(u[j])
                kernel = (1 + (u[k] @ u[j] / norms if norms else 0.0)) / 2
                if lag <= max_lag:
                    near[lag] += kernel
                    counts[lag] += 1
                if min_separation < lag <= (max_separation or len(u)):
                    far.append(kernel)
    near, beta = near / counts, np.mean(far)
    return (near[1:] - beta) / (near[0] - beta), near[1:], beta


def far_mean(values_by_lag, length, first=129, last=384):
    lags = np.arange(first, min(last, length - 1) + 1)
    return (values_by_lag(lags) * (length - lags)).sum() / (length - lags).sum()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("max_separation", [13, None])
def test_score_equals_the_sum_over_every_pair(max_separation, compiled, monkeypatch):
    monkeypatch.setattr(pairs, "HAVE_NUMBA", compiled and pairs.HAVE_NUMBA)
    rng = np.random.default_rng(0)
    sequences = [rng.standard_normal((length, 3)) for length in (40, 1, 23, 9)]
    sequences[0][5:9] = 0
    found = task_continuity(sequences, None, 5, 7, max_separation, bootstrap=0)
    mu_t, similarity, beta = direct_sum(sequences, 5, 7, max_separation)
    np.testing.assert_allclose(found.mu_t, mu_t, atol=1e-12)
    np.testing.assert_allclose(found.similarity, similarity, atol=1e-12)
    assert found.beta == pytest.approx(beta, abs=1e-12)
    assert found.mu == pytest.approx(mu_t @ np.array([5, 4, 3, 2, 1]) / 15, abs=1e-12)


@pytest.mark.parametrize("starts", [None, 100, 33, 1])
def test_fft_shifted_products_and_the_compiled_pass_agree(starts, monkeypatch):
    u = np.random.default_rng(1).standard_normal((100, 5))
    near, far = pairs.lag_sums(u, 40, starts), pairs.far_sum(u, 44, 60, starts)
    pair_sums = pairs.pair_sums(u, 40, 44, 60, starts or 100)
    np.testing.assert_allclose(pair_sums, [*near, far], atol=1e-10)
    assert far == pytest.approx(sum(u[k] @ u[k + 44 : k + 61].sum(0) for k in range(starts or 100)), abs=1e-10)
    monkeypatch.setattr(pairs, "FFT_LAG", 1)
    np.testing.assert_allclose(pairs.lag_sums(u, 40, starts), near, atol=1e-10)
    assert pairs.lag_sums(u[:7], 40, 7)[7:].tolist() == [0.0] * 34


@pytest.mark.parametrize("channels", ["raw", "fourier", "delay"])
def test_a_long_sequence_is_summed_in_pieces(channels, monkeypatch):
    series = np.cumsum(np.random.default_rng(2).standard_normal((1, 1000, 2)), axis=1)
    whole = task_continuity(series, channels=channels, bootstrap=0)
    monkeypatch.setattr(metric, "PIECE", 37)
    pieces = task_continuity(series, channels=channels, bootstrap=0)
    np.testing.assert_allclose(pieces.mu_t, whole.mu_t, atol=1e-12)
    np.testing.assert_array_equal(pieces.n_pairs, whole.n_pairs)


@pytest.mark.parametrize("length", [400, 1024])
def test_a_rotation_has_the_cosine_of_its_angle(length):
    w = 0.3
    angle = w * np.arange(length)
    found = task_continuity(np.stack([np.cos(angle), np.sin(angle)], 1)[None], bootstrap=0)
    f = far_mean(lambda lag: np.cos(w * lag), length)
    np.testing.assert_allclose(found.mu_t, (np.cos(w * LAGS) - f) / (1 - f), atol=1e-12)


@pytest.mark.parametrize(("rho", "d"), [(0.9, 1), (0.8, 3), (0.97, 8)])
def test_ar1_follows_the_hypergeometric_law(rho, d):
    """Two normal vectors of correlation r: E cos = r (2/d) [G((d+1)/2) / G(d/2)]^2 2F1(1/2, 1/2; d/2 + 1; r^2)."""

    def law(lag):
        r = rho**lag
        factor = (2 / d) * math.exp(2 * (math.lgamma((d + 1) / 2) - math.lgamma(d / 2)))
        return r * factor * hyp2f1(0.5, 0.5, d / 2 + 1, r * r)

    n, length = 200, 600
    noise = np.random.default_rng(2).standard_normal((n, length, d)) * math.sqrt(1 - rho * rho)
    noise[:, 0] /= math.sqrt(1 - rho * rho)
    for k in range(1, length):
        noise[:, k] += rho * noise[:, k - 1]
    found = task_continuity(noise, channels="raw", bootstrap=0)
    f = far_mean(lambda lag: law(lag.astype(float)), length)
    np.testing.assert_allclose(found.mu_t, (law(LAGS.astype(float)) - f) / (1 - f), atol=0.03)


def test_independent_symbols_score_zero():
    codes = np.eye(10)[np.random.default_rng(3).integers(10, size=(100, 500))]
    found = task_continuity(codes)
    assert found.low < 0 < found.high and abs(found.mu) < 3e-3


def test_one_channel_of_noise_scores_zero_once_lifted():
    noise = np.random.default_rng(4).standard_normal((100, 500, 1))
    found = task_continuity(noise)
    assert found.kernel == "fourier" and abs(found.mu) < 3e-3


def test_symbols_held_h_steps_decay_linearly():
    h, length, n = 8, 800, 400
    held = np.repeat(np.eye(16)[np.random.default_rng(5).integers(16, size=(n, length // h))], h, axis=1)
    found = task_continuity(held, bootstrap=0)
    t = np.arange(1, h)
    np.testing.assert_allclose(found.mu_t[: h - 1], (h - t) / h * length / (length - t), atol=5e-3)
    np.testing.assert_allclose(found.mu_t[h:], 0, atol=5e-3)


def test_shuffling_time_leaves_nothing_and_keeps_every_step():
    walk = np.cumsum(np.random.default_rng(6).standard_normal((80, 300, 4)), axis=1)
    walk -= walk.mean(1, keepdims=True)
    lengths = np.full(80, 290)
    mixed = shuffled(walk, lengths, seed=1)
    np.testing.assert_array_equal(np.sort(mixed[:, :290], axis=1), np.sort(walk[:, :290], axis=1))
    np.testing.assert_array_equal(mixed[:, 290:], walk[:, 290:])
    assert task_continuity(walk, lengths, bootstrap=0).mu > 0.8
    assert abs(task_continuity(mixed, lengths, bootstrap=0).mu) < 0.01


def test_reversing_time_changes_nothing():
    walk = np.cumsum(np.random.default_rng(7).standard_normal((5, 300, 3)), axis=1)
    forward, backward = task_continuity(walk, bootstrap=0), task_continuity(walk[:, ::-1], bootstrap=0)
    np.testing.assert_allclose(forward.mu_t, backward.mu_t, atol=1e-12)


@pytest.mark.parametrize("filler", [np.nan, 1e30])
def test_padding_is_never_read(filler):
    rng = np.random.default_rng(8)
    lengths = np.array([200, 331, 150])
    padded = np.full((3, 331, 2), filler)
    sequences = [rng.standard_normal((m, 2)) for m in lengths]
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    assert task_continuity(padded, lengths).mu == task_continuity(sequences).mu


def test_a_zero_step_is_half_alike_with_itself():
    pixels = np.random.default_rng(9).standard_normal((4, 300, 3))
    pixels[:, ::2] = 0
    found = task_continuity(pixels, bootstrap=0)
    assert found.denominator + found.beta == pytest.approx(0.75)


def test_stationary_data_score_the_same_at_twice_the_length():
    rng = np.random.default_rng(10)
    phase = 0.05 * np.arange(2048)[None] + rng.uniform(0, 2 * np.pi, (60, 1))
    series = np.stack([np.cos(phase), np.sin(phase), rng.standard_normal(phase.shape)], axis=2)
    short, long = task_continuity(series[:, :1024]), task_continuity(series)
    assert short.low - 0.01 < long.mu < short.high + 0.01


def test_stream_equals_one_batch_bit_for_bit_and_memory_stays_flat(monkeypatch):
    monkeypatch.setattr(metric, "GROUPS", 8)
    data = np.random.default_rng(11).standard_normal((61, 200, 2))
    whole = task_continuity(data)
    batches = [(data[i : i + 7], None) for i in range(0, 61, 7)]
    stream = task_continuity_stream(batches)
    assert (whole.mu, whole.low, whole.high) == (stream.mu, stream.low, stream.high)
    accumulator = Similarity()
    for batch in batches:
        accumulator.add(*batch)
    assert accumulator._rows.shape[0] == 8 and stream.n_sequences == 61


def test_interval_covers_the_truth_of_ar1():
    """95 % intervals over 200 repeats: between 88 and 99 % hold the mean score, whichever way they are made."""
    rng, rho = np.random.default_rng(12), 0.7
    scores, intervals = {"samples": [], "blocks": []}, {"samples": [], "blocks": []}
    for repeat in range(200):
        for kind, shape in (("samples", (40, 100, 2)), ("blocks", (1, 1500, 2))):
            series = rng.standard_normal(shape)
            for k in range(1, shape[1]):
                series[:, k] = rho * series[:, k - 1] + math.sqrt(1 - rho**2) * series[:, k]
            found = task_continuity(series, None, 4, 20, 60, bootstrap=200, seed=repeat)
            assert found.interval == kind
            scores[kind].append(found.mu)
            intervals[kind].append((found.low, found.high))
    for kind in scores:
        truth = np.mean(scores[kind])
        assert 0.88 <= np.mean([low <= truth <= high for low, high in intervals[kind]]) <= 0.99


def test_one_channel_sees_more_than_signs():
    phase = np.linspace(0, 40, 600)[None] + np.random.default_rng(13).uniform(0, 6, (20, 1))
    wave = 10 + np.sin(phase)
    assert task_continuity(wave, channels="raw").reason
    assert task_continuity(wave).mu > 0.5
    assert task_continuity(wave, channels="raw").kernel == "sign"


def test_the_lift_is_a_gaussian_kernel_of_median_bandwidth():
    values = np.random.default_rng(14).standard_normal((4000, 1))
    kernel = fit_lift([values])
    a, b = kernel(values[:1000]), kernel(values[1000:2000])
    cosine = (a * b).sum(1) / lift.FEATURES
    distance = np.abs(values[:1000] - values[1000:2000])[:, 0] / values.std()
    bandwidth = np.median(np.abs(values[:2000] - values[2000:])) / values.std()
    assert np.abs(cosine - np.exp(-(distance**2) / (2 * bandwidth**2))).mean() < 0.1


def test_delay_embedding_shortens_by_its_depth():
    found = task_continuity(np.random.default_rng(15).standard_normal((3, 300, 1)), channels="delay", bootstrap=0)
    assert found.n_pairs[0] == 3 * (300 - lift.DELAYS)
    assert found.kernel == "delay" and abs(found.mu) < 0.03


@pytest.mark.parametrize(
    ("latents", "reason"),
    [
        (np.ones((4, 400, 3)), "constant"),
        (np.zeros((4, 400, 3)), "constant"),
        (np.full((4, 400, 1), 0.1, dtype=np.float32), "constant"),
        (np.random.default_rng(0).standard_normal((4, 129, 3)), "shorter than min_separation"),
        ([], "no sequence"),
    ],
)
def test_an_undefined_score_says_why(latents, reason):
    found = task_continuity(latents)
    assert found.mu is None and found.low is None and found.status == "undefined"
    assert reason in found.reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_lag": 0}, "max_lag"),
        ({"min_separation": 8}, "min_separation 8"),
        ({"max_separation": 100}, "max_separation 100"),
        ({"weights": "steep"}, "steep"),
        ({"weights": [1.0, 2.0]}, "16 numbers"),
        ({"channels": "wave"}, "wave"),
        ({"lengths": [5]}, "lengths"),
    ],
)
def test_a_bad_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        task_continuity(np.zeros((2, 300, 2)), **arguments)


def test_nan_is_located():
    latents = np.zeros((3, 300, 2))
    latents[1, 7, 0] = np.nan
    with pytest.raises(ValueError, match="sequence 1, step 7"):
        task_continuity(latents)
