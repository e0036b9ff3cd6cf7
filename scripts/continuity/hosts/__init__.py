"""The registry of forecasters: a new host is one file and one line here. Classes load when asked for."""

import importlib
import inspect
from collections.abc import Mapping

from continuity.problems import nearest

HOST_MODULES = {
    "sst": "continuity.hosts.sst:SST",
    "mamba": "continuity.hosts.mamba:MambaForecaster",
    "dlinear": "continuity.hosts.dlinear:DLinear",
    "persistence": "continuity.hosts.persistence:Persistence",
    "last_season": "continuity.hosts.persistence:LastSeason",
}
"""Where each host's class is. A run's identity holds the file of its own host, not this table."""


class _Registry(Mapping):
    """Name -> host class, imported on first use."""

    def __getitem__(self, name):
        module, _, cls = HOST_MODULES[name].partition(":")
        return getattr(importlib.import_module(module), cls)

    def __iter__(self):
        return iter(HOST_MODULES)

    def __len__(self):
        return len(HOST_MODULES)

    def __contains__(self, name):
        return name in HOST_MODULES


HOSTS: Mapping = _Registry()


def build_host(name: str, channels: int, input_length: int, horizon: int, **options):
    """The forecaster `name`: x (B, input_length, channels) -> (B, horizon, channels).

    ValueError for an unknown name (with the nearest), an unknown option (with the known) or sizes that do not fit.
    """
    if name not in HOSTS:
        near = nearest(name, HOSTS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"unknown host {name!r}{hint} Known hosts: {', '.join(HOSTS)}")
    known = list(inspect.signature(HOSTS[name].__init__).parameters)[4:]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(
            f"host {name} has no option {', '.join(map(repr, unknown))}: its options are {', '.join(known) or 'none'}"
        )
    return HOSTS[name](channels, input_length, horizon, **options)
