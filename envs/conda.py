"""Write envs/environment.yaml, the conda file that clusters use, from envs/requirements.lock."""

from pathlib import Path

HERE = Path(__file__).parent
PYTHON = "3.11"


def environment(lock: str) -> str:
    """The conda file that pins what `lock` pins."""
    pins = "".join(f"      - {line}\n" for line in lock.splitlines() if "==" in line)
    return f"""# Made by `make environment` from requirements.lock; do not edit.
name: continuity
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python={PYTHON}
  - pip
  - pip:
{pins}"""


if __name__ == "__main__":
    (HERE / "environment.yaml").write_text(environment((HERE / "requirements.lock").read_text()))
