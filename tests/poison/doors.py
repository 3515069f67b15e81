"""Every door of a run by which a value enters: each takes a poison in under the name `it`."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from approvals import Context, Effect, Failed, Json, Receipt, Text, step, workflow
from approvals.workflows.registry import Workflow
from tests.poison.poisons import Poison

type Door = Callable[[Context, Poison], Any]
_numbers = itertools.count()
seen: dict[str, list[Any]] = {}
"""What the workflow of a poison was given, turn by turn."""


def _giving(poison: Poison) -> Callable[[], Any]:
    def it() -> Any:
        return poison.make()

    it.__annotations__ = {"return": poison.annotation}
    return it


def _effect(annotation: Any, **methods: Any) -> Any:
    members = {
        "kind": f"poison.{next(_numbers)}",
        "perform": lambda self, request, key: Receipt("x"),
        **methods,
    }
    return types.new_class("It", (Effect[annotation],), exec_body=lambda space: space.update(members))


def _raising(kind: Callable[[Any], BaseException]) -> Callable[[Poison], Any]:
    return lambda poison: _throw(kind(poison.make()))


def _throw(error: BaseException) -> Any:
    raise error


def _asked(ctx: Context, **more: Any) -> int:
    ctx.request_approval("it", **{"policy": "one-reviewer", "action": 1, "title": "t", **more})
    return 1


def _progress(ctx: Context, poison: Poison) -> int:
    ctx.progress(1, 2, poison.make())
    ctx.step("it", len, "")
    return 1


VALUES: dict[str, Door] = {
    "step": lambda ctx, p: ctx.step("it", _giving(p)),
    "sync step": lambda ctx, p: ctx.step("it", step(durability="sync")(_giving(p))),
    "transaction": lambda ctx, p: ctx.transaction("it", _giving(p)),
    "argument": lambda ctx, p: ctx.step("it", lambda value: 1, p.make()),
    "request": lambda ctx, p: ctx.effect("it", _once(p, "request", lambda: _effect(p.annotation)), p.make()).request,
    "evidence of a receipt": lambda ctx, p: dict(ctx.effect("it", _once(p, "kept", lambda: _effect(
        int, perform=lambda self, request, key: Receipt("x", evidence={"it": p.make()}))), 1).evidence),
    "action": lambda ctx, p: _asked(ctx, action=p.make()),
    "evidence": lambda ctx, p: _asked(ctx, evidence=[Json("it", p.make())]),
    "input": lambda ctx, p: 1,
    "output": lambda ctx, p: 1,
    "input of a child": lambda ctx, p: ctx.wait(ctx.child("it", _once(p, "child", lambda: _child(p)), p.make())),
}  # fmt: skip
TEXTS: dict[str, Door] = {
    "error of a step": lambda ctx, p: ctx.step("it", _raising(ValueError), p),
    "verdict": lambda ctx, p: _raising(Failed)(p),
    "bug": lambda ctx, p: _raising(KeyError)(p),
    "title": lambda ctx, p: _asked(ctx, title=p.make()),
    "summary": lambda ctx, p: _asked(ctx, summary=p.make()),
    "text of evidence": lambda ctx, p: _asked(ctx, evidence=[Text("it", p.make())]),
    "target": lambda ctx, p: ctx.effect("it", _once(p, "target", lambda: _effect(
        int, target=lambda self, request: p.make())), 1).external_id,
    "description": lambda ctx, p: ctx.effect("it", _once(p, "told", lambda: _effect(
        int, describe=lambda self, request: p.make())), 1).external_id,
    "identifier of a receipt": lambda ctx, p: ctx.effect("it", _once(p, "id", lambda: _effect(
        int, perform=lambda self, request, key: Receipt(p.make(), checksum=p.make()))), 1).key,
    "name": lambda ctx, p: ctx.step(p.make(), len, ""),
    "name of a signal": lambda ctx, p: ctx.wait(ctx.signal(p.make()), at_most=timedelta(seconds=1)),
    "name of an identifier": lambda ctx, p: str(ctx.uuid(p.make())),
    "progress": _progress,
}  # fmt: skip

_made: dict[tuple[str, str], Any] = {}


def _once(poison: Poison, what: str, make: Callable[[], Any]) -> Any:
    """The same class at every replay."""
    if (poison.name, what) not in _made:
        _made[poison.name, what] = make()
    return _made[poison.name, what]


def _child(poison: Poison) -> Workflow[Any, Any]:
    def child(ctx: Context, it: Any) -> int:
        return 1

    return _registered(child, it=poison.annotation)


def _registered(fn: Any, **annotations: Any) -> Workflow[Any, Any]:
    fn.__annotations__ = {"return": int, **annotations}
    fn.__qualname__ = name = f"poison.{next(_numbers)}"
    return workflow(name=name, version=1)(fn)


def behind(door: str, poison: Poison) -> Workflow[Any, Any]:
    """A workflow that takes this poison in by this door, sleeps, and says what it was given."""
    enter = {**VALUES, **TEXTS}[door]

    def it(ctx: Context, given: Any) -> Any:
        value = enter(ctx, poison)
        seen.setdefault(poison.name, []).append(given if door == "input" else value)
        ctx.sleep("a while", timedelta(seconds=2))
        return poison.make() if door == "output" else 1

    given = poison.annotation if door == "input" else int
    return _registered(it, given=given, **({"return": poison.annotation} if door == "output" else {}))
