"""Mistakes of a user: each problem one line that names the place and the remedy."""

import difflib
from collections.abc import Iterable


class Problem(Exception):
    """What is wrong with an input; `problems` holds one line each. Ends a command with exit code 2, without a traceback."""

    def __init__(self, problems: str | Iterable[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever its case; None where none is alike."""
    spelled = {str(one).lower(): one for one in known}
    near = difflib.get_close_matches(str(name).lower(), list(spelled), n=1, cutoff=0.5)
    return spelled[near[0]] if near else None
