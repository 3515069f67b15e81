"""Workflows by name and version, and the options that authors put on their functions."""

from __future__ import annotations

import importlib
import inspect
import re
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from approvals.errors import InvalidWorkflow, UnknownVersion, UnknownWorkflow
from approvals.limits import limits
from approvals.types import Retry
from approvals.workflows import values
from approvals.workflows.context import Context
from approvals.workflows.effects import within_a_turn

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
P = ParamSpec("P")
R = TypeVar("R")

Durability = Literal["async", "sync", "none"]
_workflows: dict[str, dict[int, Workflow[Any, Any]]] = {}


class Workflow(Generic[I, O]):
    """A registered version of a workflow; calling it runs the plain function."""

    def __init__(
        self,
        fn: Callable[[Context, I], O],
        *,
        name: str,
        version: int,
        compatible_with: Sequence[int],
        visible_to: Sequence[str],
        startable_by: Sequence[str],
        compensate: bool = False,
    ) -> None:
        self.compensate = compensate
        self.fn, self.name, self.version = fn, name, version
        self.compatible_with = tuple(compatible_with)
        self.visible_to, self.startable_by = tuple(visible_to), tuple(startable_by)
        self.__doc__, self.__module__ = fn.__doc__, fn.__module__

    def __call__(self, ctx: Context, input: I, /) -> O:
        return self.fn(ctx, input)

    def __repr__(self) -> str:
        return f"<Workflow {self.name} v{self.version}>"

    def is_visible_to(self, groups: Collection[str]) -> bool:
        """Whether members of these groups see it and its runs; without `visible_to`, everybody signed in does."""
        named = {*self.visible_to, *self.startable_by}
        return not self.visible_to or not named.isdisjoint(groups)

    @cached_property
    def input(self) -> values.Codec[I]:
        """How its input is stored."""
        return values.codec_for(values.input_annotation(self.fn))

    @cached_property
    def output(self) -> values.Codec[O]:
        """How its output is stored."""
        return values.codec_for(values.return_annotation(self.fn))


def workflow(
    *,
    name: str,
    version: int,
    compatible_with: Sequence[int] = (),
    migrations: Mapping[int, Callable[[Any], Any]] = {},
    compensate: bool = False,
    visible_to: Sequence[str] = (),
    startable_by: Sequence[str] = (),
) -> Callable[[Callable[[Context, I], O]], Workflow[I, O]]:
    """Registers a function as a version of a workflow.

    `compensate`: a run that fails first undoes what it has done (CASES 29).

    Raises InvalidWorkflow for an `async def`, an odd name or version, or a second function of the same
    name and version.
    """

    def register(fn: Callable[[Context, I], O]) -> Workflow[I, O]:
        _check(fn, name, version)
        made = Workflow(
            fn,
            name=name,
            version=version,
            compatible_with=compatible_with,
            visible_to=visible_to,
            startable_by=startable_by,
            compensate=compensate,
        )
        versions = _workflows.setdefault(name, {})
        there = versions.get(version)
        if there is not None and _place(there.fn) != _place(fn):
            raise InvalidWorkflow(
                "Two workflows of one name and version; raise the version of one",
                name=name,
                version=version,
                first=_place(there.fn),
                second=_place(fn),
            )
        versions[version] = made
        return made

    if migrations:
        _not_yet("migrations=")
    return register


def _place(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{fn.__qualname__}"


def _check(fn: Callable[..., Any], name: str, version: int) -> None:
    if inspect.iscoroutinefunction(fn):
        raise InvalidWorkflow(
            "A workflow is a plain def; its steps may be async", name=name, function=_place(fn)
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise InvalidWorkflow(
            "A workflow's name is letters, digits, '.', '_' and '-', at most 100", name=name
        )
    if type(version) is not int or version < 1:
        raise InvalidWorkflow("A version is a whole number from 1", name=name, version=version)


def get(name: str) -> Workflow[Any, Any]:
    """The version that new runs start at. Raises UnknownWorkflow."""
    if not (versions := _workflows.get(name)):
        raise UnknownWorkflow(
            workflow=name,
            registered=", ".join(sorted(_workflows)) or "none",
            next="name the module that registers it in WORKFLOW_MODULES",
        )
    return versions[max(versions)]


def find(name: str) -> Workflow[Any, Any] | None:
    """The version that new runs start at; None if there is no such workflow here."""
    versions = _workflows.get(name)
    return versions[max(versions)] if versions else None


def resolve(name: str, version: int) -> Workflow[Any, Any]:
    """The code that may continue a run of this version. Raises UnknownVersion."""
    versions = _workflows.get(name, {})
    if version in versions:
        return versions[version]
    for number in sorted(versions, reverse=True):
        if version in versions[number].compatible_with:
            return versions[number]
    raise UnknownVersion(workflow=name, version=version, registered=sorted(versions))


def known() -> list[tuple[str, int]]:
    """Every (workflow, version) that this process can continue."""
    pairs = {
        (w.name, v)
        for vs in _workflows.values()
        for w in vs.values()
        for v in (w.version, *w.compatible_with)
    }
    return sorted(pairs)


def all_current() -> list[Workflow[Any, Any]]:
    """The newest version of each workflow, by name."""
    return [versions[max(versions)] for _, versions in sorted(_workflows.items())]


def autodiscover() -> None:
    """Imports the `workflows` modules of installed apps, and WORKFLOW_MODULES.

    Raises ImproperlyConfigured for one of these that cannot be imported.
    """
    autodiscover_modules("workflows")
    for module in getattr(settings, "WORKFLOW_MODULES", ()):
        try:
            importlib.import_module(module)
        except (ImportError, SyntaxError) as error:
            raise ImproperlyConfigured(
                f"WORKFLOW_MODULES names {module}, which cannot be imported: {type(error).__name__}: {error}. Mend "
                "the module, its name, or PYTHONPATH; or take it out of WORKFLOW_MODULES."
            ) from error


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What `@step` says of a function."""

    durability: Durability = "async"
    retry: Retry | None = None
    timeout: timedelta | None = None


_PLAIN = StepOptions()
_OPTIONS = "__approvals_step__"


def step(
    *, durability: Durability = "async", retry: Retry | None = None, timeout: timedelta | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Options of a function that is used as a step. Raises InvalidWorkflow for options that cannot hold."""
    if durability not in ("async", "sync", "none"):
        raise InvalidWorkflow("A step's durability is 'async', 'sync' or 'none'", found=durability)
    if durability == "none" and retry is not None:
        raise InvalidWorkflow("A step that is never stored cannot be tried again later; use 'async'")
    if retry is not None and retry.attempts > limits().attempts:
        told = "Too many attempts of a step (APPROVALS_LIMITS: attempts)"
        raise InvalidWorkflow(told, found=retry.attempts, limit=limits().attempts)
    if timeout is not None:
        within_a_turn(timeout, "A step's timeout")
    options = StepOptions(durability, retry, timeout)

    def mark(fn: Callable[P, R]) -> Callable[P, R]:
        setattr(fn, _OPTIONS, options)
        return fn

    return mark


def step_options(fn: Callable[..., Any]) -> StepOptions:
    """The options of a function, or the defaults."""
    found = getattr(fn, _OPTIONS, _PLAIN)
    return found if isinstance(found, StepOptions) else _PLAIN


def _not_yet(what: str) -> None:
    from approvals.errors import NotAvailable

    raise NotAvailable(f"@workflow({what}) is not built yet")


_results: weakref.WeakKeyDictionary[Callable[..., Any], values.Codec[Any]] = weakref.WeakKeyDictionary()


def result_codec(fn: Callable[..., Any]) -> values.Codec[Any]:
    """How what a step function returns is stored; resolved once per function. Raises InvalidWorkflow."""
    try:
        return _results[fn]
    except KeyError:
        codec = _results[fn] = values.codec_for(values.return_annotation(fn))
        return codec
    except TypeError:  # no weak reference to it, or no hash
        return values.codec_for(values.return_annotation(fn))
