"""Mistakes of a user: each problem one line that names the place and the remedy."""

from collections.abc import Iterable


class Problem(Exception):
    """What is wrong with an input; `problems` holds one line each. Ends a command with exit code 2, without a traceback."""

    def __init__(self, problems: str | Iterable[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))
