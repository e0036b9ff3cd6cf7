"""Speed of trajectories, of the task metric and of the generators, as ratios within this run. Prints `name: ratio x`."""

import math
import os
import subprocess
import sys
import time

import numpy as np
from continuity import metric, pairs, systems
from continuity.tasks import listops, pathfinder

STEP, STEPS, PATHS = 0.01, 1040, 20_000


def seconds(work, repeats: int = 3) -> float:
    """Shortest of `repeats` runs, after one that is not timed."""
    work()
    return min(_once(work) for _ in range(repeats))


def _once(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def python_path(x: float, v: float, mu: float) -> list[tuple[float, float]]:
    """Van der Pol by Runge-Kutta in plain Python, one trajectory."""

    def slope(x, v):
        return v, mu * (1 - x * x) * v - x

    h, path = STEP, [(x, v)]
    for _ in range(STEPS - 1):
        a, b = slope(x, v)
        c, d = slope(x + h / 2 * a, v + h / 2 * b)
        e, f = slope(x + h / 2 * c, v + h / 2 * d)
        g, k = slope(x + h * e, v + h * f)
        x, v = x + h / 6 * (a + 2 * c + 2 * e + g), v + h / 6 * (b + 2 * d + 2 * f + k)
        path.append((x, v))
    return path


def trajectories() -> None:
    def fast():
        return systems.simulate("vdp", PATHS, STEPS, STEP, internal_step=STEP, threads=2)

    found = fast()
    starts = [(*found.states[i, 0], found.parameters[i, 0]) for i in range(20)]
    paths = np.array([python_path(*start) for start in starts])
    assert np.abs(paths - found.states[:20]).max() < 1e-6
    plain = seconds(lambda: [python_path(*start) for start in starts]) * PATHS / len(starts)
    print(f"{PATHS} trajectories of {STEPS} RK4 steps over a Python loop: {plain / seconds(fast):.0f} x")


def direct_lags(latents: np.ndarray) -> np.ndarray:
    """Mean similarity at every lag as the definition says it, one lag after the other."""
    norm = np.linalg.norm(latents, axis=1)
    found = []
    for t in range(len(latents)):
        head, tail = slice(0, len(latents) - t), slice(t, None)
        cosine = (latents[head] * latents[tail]).sum(1) / (norm[head] * norm[tail])
        found.append(((1 + cosine) / 2).mean())
    return np.array(found)


def all_lags(latents: np.ndarray) -> np.ndarray:
    unit = latents / np.linalg.norm(latents, axis=1, keepdims=True)
    return (1 + pairs.lag_sums(unit, len(unit) - 1) / np.arange(len(unit), 0, -1)) / 2


def direct_score(latents: np.ndarray) -> np.ndarray:
    """Mean similarity at lags 0 ... 384 from the whole matrix of pairs of every sequence."""
    total = np.zeros(385)
    for sequence in latents:
        unit = sequence / np.linalg.norm(sequence, axis=1, keepdims=True)
        pairs = unit @ unit.T
        total += [np.trace(pairs, offset=t) for t in range(385)]
    return (1 + total / (len(latents) * (latents.shape[1] - np.arange(385)))) / 2


def similarities() -> None:
    rng = np.random.default_rng(0)
    one = rng.standard_normal((1024, 64))
    assert np.allclose(all_lags(one), direct_lags(one))
    ratio = seconds(lambda: direct_lags(one)) / seconds(lambda: all_lags(one))
    print(f"similarity at all lags, length 1024, over the sum lag by lag: {ratio:.0f} x")
    latents = rng.standard_normal((2000, 1024, 64), dtype=np.float32)
    few = latents[:20].astype(np.float64)
    assert math.isclose(direct_score(few)[1], metric.task_continuity(few).similarity[0], abs_tol=1e-12)
    slow, fast = seconds(lambda: direct_score(few)) * 100, seconds(lambda: metric.task_continuity(latents), 2)
    print(f"mu with interval of 2,000 sequences of 1,024 x 64 over the matrix of pairs: {slow / fast:.0f} x ({fast:.1f} s)")


def trees() -> None:
    spent = seconds(lambda: listops.generate(0, "train", 0, 2000))
    print(f"listops samples a second on one core over the 2,000 asked of two: {2000 / spent / 2000:.1f} x")


def contours() -> None:
    spent = seconds(lambda: pathfinder.generate(0, "train", 0, 500))
    print(f"pathfinder images of 32 x 32 a second on one core over the 500 asked of two: {500 / spent / 500:.1f} x")
    code = (
        "import time; from continuity.tasks import pathfinder; start = time.perf_counter();"
        "pathfinder.generate(0, 'train', 0, 3); print(time.perf_counter() - start)"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    print(f"pathfinder compiled over plain Python: {float(plain.stdout) / 3 / (spent / 500):.0f} x")


def main() -> None:
    trajectories()
    similarities()
    trees()
    contours()


if __name__ == "__main__":
    main()
