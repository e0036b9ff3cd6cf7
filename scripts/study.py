"""Check a configuration, then hand over to Snakemake: `make study` in one process."""

import argparse
import os
import sys

from continuity import config, record, study

LOOKING = ("-n", "--dry", "--report", "--summary", "--detailed-summary", "--lint", "--list", "-l", "-D", "-h", "--help")
"""Beginnings of snakemake's flags with which nothing runs."""


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--config", default=str(config.DEFAULT), help="a configuration, laid onto config/config.yaml")
    parse.add_argument("--cores", type=int, default=os.cpu_count(), help="jobs at a time")
    parse.add_argument("flags", nargs="*", help="flags for snakemake, after --")
    arguments = parse.parse_args()
    with study.exits():
        asked = study.Study(config.load(arguments.config))
        asked.check()
    if not any(flag.startswith(LOOKING) for flag in arguments.flags):
        record.keep(asked, arguments.config, arguments.cores)
    command = [sys.executable, "-m", "snakemake"]
    if not os.path.samefile(arguments.config, config.DEFAULT):
        command += ["--configfile", arguments.config]
    # The study's own lock, taken by the Snakefile, replaces Snakemake's: it cannot go stale.
    command += ["--nolock", "--rerun-incomplete", "--cores", str(arguments.cores)]
    os.execv(sys.executable, command + arguments.flags)


if __name__ == "__main__":
    main()
