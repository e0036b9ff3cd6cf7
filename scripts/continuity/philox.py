"""Random numbers from (seed, index) alone: Philox 4x64 (Salmon et al. 2011), the generator of numpy.random.Philox."""

import numpy as np

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def _multiply(a: np.uint64, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """High and low word of the 128-bit product."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    cross = a_high * b_low + (a_low * b_low >> _HALF)
    other = a_low * b_high + (cross & _LOW)
    return a_high * b_high + (cross >> _HALF) + (other >> _HALF), a * b


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Ten rounds of Philox 4x64: counter (..., 4) and key (..., 2) of uint64 -> (..., 4) uint64."""
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, dtype=np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, dtype=np.uint64), -1, 0)
    with np.errstate(over="ignore"):
        for _ in range(10):
            high0, low0 = _multiply(_M0, c0)
            high1, low1 = _multiply(_M1, c2)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = k0 + _W0, k1 + _W1
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1)


def uniforms(seed: int, index: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for every index, from (seed, index) alone: (n,) -> (n, count)."""
    key = np.stack(np.broadcast_arrays(np.uint64(seed), np.asarray(index, dtype=np.uint64)), axis=-1)
    blocks = -(-count // 4)
    counter = np.zeros((blocks, 4), dtype=np.uint64)
    counter[:, 0] = np.arange(blocks)
    words = philox(counter[None], key[:, None]).reshape(len(key), 4 * blocks)[:, :count]
    return (words >> np.uint64(11)) * 2.0**-53


def normals(seed: int, index: np.ndarray, level: int, count: int) -> np.ndarray:
    """Standard normals (n, count) of a bridge level; a larger count keeps the earlier ones."""
    out = np.empty((len(index), count))
    for row, i in zip(out, index, strict=True):
        np.random.Generator(np.random.Philox(key=[seed, i], counter=[0, 0, 0, level + 1])).standard_normal(out=row)
    return out
