"""Waiting for something to happen on a cluster, with an end."""

import time


def wait_for(condition, what: str, seconds: float = 300.0):
    """The first true value of `condition()`; AssertionError that names `what` where there is none in time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)
    return found
