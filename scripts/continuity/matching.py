"""Networks of equal size: the width at which a whole network has about a given number of parameters."""

import itertools
import math
from collections.abc import Callable, Iterator

from continuity.problems import Problem

TOLERANCE = 0.05
"""Share of the wanted number of parameters by which a network may miss it."""
WIDEST_MULTIPLE = 512


def fit(model: dict, sizes: dict, count: Callable[[dict, dict], int]) -> tuple[dict, dict]:
    """`model` and `sizes` with `d_model` in place of `parameters`: the width whose network is nearest to that many.

    model: a config entry; where its own options reach no width within 5 %, those of its `match` {option: [values]} are
    tried in their order. count(model, sizes) → parameters of the whole network, ValueError for a width that it refuses.
    Raises Problem, one line, where no width is near enough.
    """
    goal = sizes["parameters"]
    shared = {name: value for name, value in sizes.items() if name not in ("parameters", "d_model")}
    nearest = None
    for options in _variants(model):
        variant = model | {"options": options}
        found = _width(lambda width, variant=variant: count(variant, shared | {"d_model": width}), goal)
        if found is None:
            continue
        width, reached = found
        if abs(reached - goal) <= TOLERANCE * goal:
            return variant, shared | {"d_model": width}
        if nearest is None or abs(reached - goal) < abs(nearest[1] - goal):
            nearest = found
    raise Problem(_refusal(model, goal, nearest))


def _variants(model: dict) -> Iterator[dict]:
    """The model's options, then every combination of its `match`, the later option changing fastest."""
    options, match = model.get("options", {}), model.get("match", {})
    yield options
    for values in itertools.product(*match.values()) if match else ():
        yield options | dict(zip(match, values, strict=True))


def _width(size: Callable[[int], int], goal: int) -> tuple[int, int] | None:
    """(width, parameters) nearest to `goal`, among the multiples of the least width that is not refused; None without one.

    Sizes need not rise with the width everywhere: near the goal every multiple is tried.
    """

    def measured(width: int) -> float:
        try:
            return size(width)
        except ValueError:
            return math.inf

    multiple = next((width for width in range(1, WIDEST_MULTIPLE + 1) if measured(width) < math.inf), None)
    if multiple is None:
        return None
    low, high = 1, 1
    while measured(multiple * high) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if measured(multiple * middle) < goal else (low, middle)
    near = range(max(1, math.floor(0.8 * low)), math.ceil(1.2 * high) + 1)
    reached = {multiple * times: measured(multiple * times) for times in near}
    width = min(reached, key=lambda width: (abs(reached[width] - goal), width))
    return width, reached[width]


def _refusal(model: dict, goal: int, nearest: tuple[int, int] | None) -> str:
    if nearest is None:
        return f"models: {model['name']}: no width up to {WIDEST_MULTIPLE} suits its options; change them"
    remedy = "more values of `match`" if "match" in model else "an option to vary, such as `match: {d_state: [4, 8]}`"
    return (
        f"models: {model['name']}: no width has within {TOLERANCE:.0%} of {goal} parameters, the nearest is d_model "
        f"{nearest[0]} with {nearest[1]}; give {remedy}, or another network.parameters"
    )
