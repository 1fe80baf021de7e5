"""`use` and `set_default`: how users put a convention in force."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import torch

from subgrad.apply import dispatch
from subgrad.apply.scopes import Entered, Scope, set_process_default
from subgrad.apply.torch_compile import guards
from subgrad.apply.traced import is_recorded_to_run, warn_of_export
from subgrad.conventions import Convention, convention

Function = TypeVar("Function", bound=Callable[..., Any])


def set_default(like: str | Convention, *, strong_zero: bool = False) -> None:
    """Set the convention of this process, for every thread that has no ``use`` of its own.

    ``set_default("torch")`` gives every gradient back to torch.

    Args:
        like: the name of a convention, or a ``Convention``.
        strong_zero: as in ``Convention``: an infinite slope times a cotangent of exactly 0 is 0.

    Raises:
        ValueError: for an unknown convention; the default then stays what it was.
    """
    chosen = convention(like, strong_zero=strong_zero)
    entered = Entered(Scope(chosen))  # until it is the default
    dispatch.install(chosen)
    guards.forget_unguarded_graphs()
    set_process_default(chosen)
    del entered


class use(Scope):
    """Put a convention in force for a block, or for every call of a function, in this thread or task only.

    At kinks, operators that run inside take the convention's element; forward values never change. The choice is made
    when the forward runs, so that backward may run later and elsewhere.

    >>> import torch, subgrad
    >>> x = torch.tensor(0.0, requires_grad=True)
    >>> with subgrad.use("right"):
    ...     y = torch.relu(x)
    >>> torch.autograd.grad(y, x)
    (tensor(1.),)

    As a decorator it also covers generators and coroutines: the convention is in force while their own code runs.

    Args:
        like: the name of a convention, or a ``Convention``.
        strong_zero: as in ``Convention``: an infinite slope times a cotangent of exactly 0 is 0.

    Raises:
        ValueError: for an unknown convention.

    Warns:
        UserWarning: if it is neither entered nor put around a function, and so has done nothing.
    """

    _is_unused = False  # of what was not made by `__init__`, or inside a compiled function, nothing is said

    def __init__(self, like: str | Convention, *, strong_zero: bool = False):
        super().__init__(convention(like, strong_zero=strong_zero))
        if not torch.compiler.is_dynamo_compiling():
            self._is_unused = True

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:  # which is there to the very end
        if self._is_unused and not is_ending():
            warnings.warn(
                f"subgrad: {self!r} was never entered and has done nothing: write `with subgrad.use(...):` around what "
                "it is for, or subgrad.set_default(...) for the whole process.",
                stacklevel=2,
            )

    def __enter__(self) -> Convention:
        self._is_unused = False
        if torch.compiler.is_dynamo_compiling():
            if is_recorded_to_run():
                warn_of_export(self.convention)
                return self.convention
            from subgrad.apply.torch_compile.use_in_graph import enter

            enter(self.convention)
            return self.convention
        if not is_recorded_to_run():  # there nothing is differentiated
            dispatch.install(self.convention)
            guards.forget_unguarded_graphs()
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        if torch.compiler.is_dynamo_compiling():
            from subgrad.apply.torch_compile.use_in_graph import leave

            if not is_recorded_to_run():
                leave()
        else:
            super().__exit__(*exception)

    def __call__(self, function: Function) -> Function:
        self._is_unused = False
        if inspect.isgeneratorfunction(function):
            wrap = self._wrap_generator
        elif inspect.iscoroutinefunction(function):
            wrap = self._wrap_coroutine
        elif inspect.isasyncgenfunction(function) or inspect.isclass(function) or not callable(function):
            raise TypeError(f"use(...) decorates functions, generators and coroutines, not {function!r}")
        else:
            wrap = self._wrap_function
        return wrap(function)  # type: ignore[return-value]

    def _wrap_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with use(self.convention):
                return function(*args, **kwargs)

        return wrapper

    def _wrap_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await types.coroutine(self._driven)(function(*args, **kwargs))

        return wrapper

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return (yield from self._driven(function(*args, **kwargs)))

        return wrapper

    def _driven(self, inner: Any) -> Generator[Any, Any, Any]:
        """A generator or coroutine with the convention in force while its own code runs, and not while it waits."""
        resume: Callable[[], Any] = functools.partial(inner.send, None)
        while True:
            try:
                with use(self.convention):
                    item = resume()
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
            except GeneratorExit:
                with use(self.convention):
                    inner.close()
                raise
            except BaseException as error:
                resume = functools.partial(inner.throw, error)
            else:
                resume = functools.partial(inner.send, sent)

    def __repr__(self) -> str:
        return f"use({self.convention!r})"


# Called where a graph breaks they are to run as they are; Dynamo still sees through them where it inlines them.
guards.keep_from_being_compiled(use.__enter__)
guards.keep_from_being_compiled(use.__exit__)
