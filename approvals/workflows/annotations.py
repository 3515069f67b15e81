"""What types a function, a workflow and an effect declare."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, get_args, get_origin

from approvals.errors import InvalidWorkflow

EMPTY = inspect.Parameter.empty


def return_annotation(fn: Callable[..., Any]) -> Any:
    """What a function, called and awaited, returns; `inspect.Parameter.empty` if it does not say.

    Takes functions, `async def`, bound and static methods, `functools.partial`, classes (which return
    themselves) and callable instances. Raises `InvalidWorkflow` for a name that cannot be resolved.
    """
    target = _function_of(fn)
    if isinstance(target, type):
        return target
    annotation = _hints(target).get("return", EMPTY)
    if get_origin(annotation) in (Coroutine, Awaitable):
        return get_args(annotation)[-1]
    return annotation


def workflow_annotations(fn: Callable[..., Any]) -> tuple[Any, Any]:
    """The input's and the output's type of a workflow function `(ctx, input)`.

    Each is `inspect.Parameter.empty` if it is not declared. Raises `InvalidWorkflow` for other parameters.
    """
    parameters = list(inspect.signature(fn).parameters.values())
    name = getattr(fn, "__qualname__", repr(fn))
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != 2 or any(parameter.kind not in positional for parameter in parameters):
        raise InvalidWorkflow(
            f"A workflow takes exactly the context and one input: def {name}(ctx: Context, input: Input)"
        )
    declared = _hints(_function_of(fn)).get(parameters[1].name, EMPTY)
    return declared, return_annotation(fn)


def input_annotation(fn: Callable[..., Any]) -> Any:
    """The input's type of a workflow function; raises as `workflow_annotations` does."""
    return workflow_annotations(fn)[0]


def effect_request_type(cls: type) -> Any:
    """The X of the `Effect[X]` that this class, or a class it inherits from, names; `Any` if none does.

    Raises `InvalidWorkflow` for a name that cannot be resolved.
    """
    found = _argument(cls, {})
    return Any if found is None or isinstance(found, TypeVar) else found


def _argument(cls: type, bound: dict[Any, Any]) -> Any:
    """The argument given to `Effect` by `cls`, whose own type parameters are bound as given; None if none is."""
    for base in types.get_original_bases(cls):
        origin = get_origin(base) or base
        if not isinstance(origin, type) or not any(k.__name__ == "Effect" for k in origin.__mro__):
            continue
        arguments = [_substituted(argument, bound) for argument in get_args(base)]
        parameters = getattr(origin, "__parameters__", ())
        if origin.__name__ == "Effect" and not any(k.__name__ == "Effect" for k in origin.__mro__[1:]):
            return _resolved(arguments[0], cls) if arguments else None
        found = _argument(origin, dict(zip(parameters, arguments, strict=False)))
        if found is not None:
            return found
    return None


def _substituted(argument: Any, bound: dict[Any, Any]) -> Any:
    if isinstance(argument, TypeVar):
        return bound.get(argument, argument)
    parameters = getattr(argument, "__parameters__", ())
    if not parameters or isinstance(argument, type):
        return argument
    return argument[tuple(bound.get(parameter, parameter) for parameter in parameters)]


def _resolved(annotation: Any, cls: type) -> Any:
    holder = types.SimpleNamespace(__annotations__={"request": annotation})
    try:
        return typing.get_type_hints(holder, vars(sys.modules[cls.__module__]), include_extras=True)[
            "request"
        ]
    except NameError as error:
        raise _unresolved(cls.__qualname__, error) from None


def _function_of(fn: Callable[..., Any]) -> Any:
    """The function whose annotations count: behind partials, methods and callable instances."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, staticmethod | types.MethodType):
            fn = fn.__func__
        else:
            break
    if isinstance(fn, type) or inspect.isroutine(fn) or hasattr(fn, "__wrapped__"):
        return fn
    return getattr(type(fn), "__call__", fn)  # noqa: B004 - the function itself, not whether there is one


def _hints(fn: Any) -> dict[str, Any]:
    """The resolved annotations of a function, with the variables that it closes over in reach."""
    inner = inspect.unwrap(fn)
    if not getattr(inner, "__annotations__", None) and not getattr(fn, "__annotations__", None):
        return {}
    code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None) or ()
    enclosed: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            enclosed[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    try:
        return typing.get_type_hints(fn, localns=enclosed, include_extras=True)
    except NameError as error:
        raise _unresolved(getattr(inner, "__qualname__", repr(fn)), error) from None
    except TypeError:  # built-in callables without annotations of their own
        return {}


def _unresolved(name: str, error: NameError) -> InvalidWorkflow:
    return InvalidWorkflow(
        f"The type {error.name!r} in the annotations of {name} cannot be found; "
        "define or import it at module level, and not under TYPE_CHECKING alone"
    )
