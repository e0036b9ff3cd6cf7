"""Write envs/environment.yaml, the conda file that clusters use, from envs/requirements.lock."""

from pathlib import Path

HERE = Path(__file__).parent
PYTHON = "3.11"


def environment(lock: str) -> str:
    """The conda file that pins what `lock` pins."""
    pins = [line for line in lock.splitlines() if "==" in line]
    head = "# Made by `make environment` from requirements.lock; do not edit.\nname: continuity\nchannels:\n  - conda-forge\n  - nodefaults\n"
    return head + f"dependencies:\n  - python={PYTHON}\n  - pip\n  - pip:\n" + "".join(f"      - {pin}\n" for pin in pins)


if __name__ == "__main__":
    (HERE / "environment.yaml").write_text(environment((HERE / "requirements.lock").read_text()))
