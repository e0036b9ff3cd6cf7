"""Forecasts without parameters, which every trained host must beat."""

from continuity.hosts.base import Host
from continuity.layers.base import check_count


class Persistence(Host):
    """The last value, again and again."""

    normalized = False

    def core(self, z):
        return z[:, -1:].expand(-1, self.horizon, -1)


class LastSeason(Host):
    """The last `season` steps, again and again. ValueError where the input is shorter than a season."""

    normalized = False

    def __init__(self, channels, input_length, horizon, season=24):
        super().__init__(channels, input_length, horizon)
        self.season = check_count("season", season)
        if season > input_length:
            raise ValueError(f"last_season needs an input of a whole season: {input_length} steps are fewer than {season}")

    def core(self, z):
        whole = -(-self.horizon // self.season)
        return z[:, -self.season :].repeat(1, whole, 1)[:, : self.horizon]
