"""Check a configuration, then hand over to Snakemake: `make study` in one process."""

import argparse
import os
import sys

from continuity import config, preflight, record, study
from continuity.identity import ROOT

LOOKING = ("-n", "--dry", "--report", "--summary", "--detailed-summary", "--lint", "--list", "-l", "-D", "-h", "--help")
"""Beginnings of snakemake's flags with which nothing runs."""


def enter(arguments: argparse.Namespace) -> None:
    """Go to the folder that snakemake's flag --directory names: relative results, and Snakemake's own files, lie there."""
    parse = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parse.add_argument("--directory", "-d")
    found, arguments.flags = parse.parse_known_args(arguments.flags)
    arguments.config = os.path.abspath(arguments.config)
    if found.directory:
        os.makedirs(found.directory, exist_ok=True)
        os.chdir(found.directory)
    arguments.config = min(arguments.config, os.path.relpath(arguments.config), key=len)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--config", default=str(config.DEFAULT), help="a configuration, laid onto config/config.yaml")
    parse.add_argument("--cores", type=int, default=os.cpu_count(), help="jobs at a time")
    parse.add_argument("flags", nargs="*", help="flags for snakemake, after --")
    arguments = parse.parse_args()
    enter(arguments)
    with study.exits():
        if not os.access(".", os.W_OK):
            advice = "name a folder of your own by snakemake's flag --directory"
            raise config.ConfigError(f"{os.getcwd()}: read-only, and Snakemake keeps its files here; {advice}")
        asked = study.Study(config.load(arguments.config))
        asked.check()
        looks = any(flag.startswith(LOOKING) for flag in arguments.flags)
        preflight.check(asked, looks)
    if not looks:
        elsewhere = any(flag.startswith(("--profile", "--executor")) for flag in arguments.flags)
        record.keep(asked, arguments.config, 0 if elsewhere else arguments.cores)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    if not os.path.samefile(arguments.config, config.DEFAULT):
        command += ["--configfile", arguments.config]
    # The study's own lock, taken by the Snakefile, replaces Snakemake's: it cannot go stale.
    command += ["--nolock", "--rerun-incomplete", "--cores", str(arguments.cores)]
    os.execv(sys.executable, command + arguments.flags)


if __name__ == "__main__":
    main()
