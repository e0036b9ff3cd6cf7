"""The registry of forecasters: a new host is one file and one line here. Classes load when asked for."""

import inspect

from continuity.problems import nearest
from continuity.registry import Registry

HOST_MODULES = {
    "sst": "continuity.hosts.sst:SST",
    "mamba": "continuity.hosts.mamba:MambaForecaster",
    "dlinear": "continuity.hosts.dlinear:DLinear",
    "persistence": "continuity.hosts.persistence:Persistence",
    "last_season": "continuity.hosts.persistence:LastSeason",
}
"""Where each host's class is. A run's identity holds the file of its own host, not this table."""

HOSTS = Registry(HOST_MODULES)


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
