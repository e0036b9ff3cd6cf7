"""`torch.compiler.disable` that imports torch's compiler, three seconds of a job, only where something is compiled."""

from collections.abc import Callable
from functools import wraps

import torch


def uncompiled(function: Callable) -> Callable:
    """`function`, which code given to `torch.compile` calls as it is."""

    @wraps(function)
    def call(*args, **kwargs):
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call
