"""Kernels run by Triton's interpreter, which prepares Triton's language once a launch, and not at every call in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from triton.runtime import interpreter


def launch_of(kernels: ModuleType) -> Callable[..., None]:
    """What takes the place of `triton_launch.launch`."""

    def launch(name: str, programs: int, tensors: Any, numbers: Any, constants: Any, warps: int) -> None:
        with _prepared_once():
            getattr(kernels, name)[programs,](*tensors, *numbers, *constants)

    return launch


@contextmanager
def _prepared_once() -> Iterator[None]:
    """For each module with functions that are called, which took a quarter of the time."""
    prepare, modules = interpreter._patch_lang, set[int]()

    def prepare_once(function: Any) -> Any:
        module = id(function.__globals__)
        if module in modules:
            return interpreter._LangPatchScope()
        modules.add(module)
        return prepare(function)

    interpreter._patch_lang = prepare_once
    try:
        yield
    finally:
        interpreter._patch_lang = prepare
