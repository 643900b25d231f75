"""Kernels run as plain Python, so that what is tested line by line is what is compiled."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def _with_attributes(argument: Any) -> Any:
    """Return a structured array so that its records have attributes, as they have in compiled code."""
    structured = isinstance(argument, np.ndarray) and argument.dtype.names is not None
    return argument.view(np.recarray) if structured else argument


def _interpreted(kernel: Any) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):  # integers wrap around silently in compiled code
            return kernel.py_func(*map(_with_attributes, arguments))

    return call


@contextmanager
def without_compiler(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Let every kernel of these modules be the Python function that it was compiled from."""
    patch = pytest.MonkeyPatch()
    replaced: dict[int, Callable[..., Any]] = {}
    for module in modules:
        for name, value in vars(module).items():
            if hasattr(value, "py_func"):
                patch.setattr(module, name, replaced.setdefault(id(value), _interpreted(value)))
    try:
        yield
    finally:
        patch.undo()
