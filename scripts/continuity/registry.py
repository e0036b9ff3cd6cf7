"""Registries: a name stands for something in a module that is imported when it is first asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module


class Registry(Mapping):
    """What `places` {name: "module:attribute"} names; importing the registry imports none of it."""

    def __init__(self, places: Mapping[str, str]):
        self.places = places

    def __getitem__(self, name: str):
        module, _, attribute = self.places[name].partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name) -> bool:
        return name in self.places
