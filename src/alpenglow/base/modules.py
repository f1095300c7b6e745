"""Importing all modules of a package, which register what they define."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType


def module_names(package: ModuleType) -> list[str]:
    """Return the names of the modules and packages that a package holds, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def import_modules(package: str) -> list[ModuleType]:
    """Import the modules of a package, in order of their names, and return them."""
    names = module_names(import_module(package))
    return [import_module(f"{package}.{name}") for name in names]


def import_folders(package: str) -> None:
    """Import the modules of a package and of the packages that it holds."""
    for module in import_modules(package):
        if hasattr(module, "__path__"):
            import_folders(module.__name__)
