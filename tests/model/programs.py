"""Random workflows: a small language, its interpreter (a workflow whose input is a program), and strategies.

Whatever people answer stands in the name of what asks them, so that a run with crashes is answered as the run
without was.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal

from django.contrib.auth.models import Group
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from approvals import Context, Handle, Retry, step, workflow
from approvals.errors import ChildFailed, EffectRefused, Failed, NotApproved, StepFailed
from tests.model.world import GUARDED, PLAIN, Order

ONE_YES = {
    "slug": "model-one",
    "rules": [{"stages": [{"needed": 1, "from": ["group:reviewers"]}]}],
    "respond_within": "2h",
}
Durability = Literal["async", "sync", "none"]
Said = Literal["approved", "rejected", "changes_requested"]
CAUGHT = (NotApproved, EffectRefused, StepFailed, ChildFailed)


class Step(BaseModel):
    do: Literal["step"] = "step"
    durability: Durability = "async"
    fails: bool = False


class Write(BaseModel):
    """A transaction that writes a row of the application's own."""

    do: Literal["write"] = "write"
    fails: bool = False


class Act(BaseModel):
    """An effect; `asks`: people first, who answer so."""

    do: Literal["act"] = "act"
    peer: Literal["once", "found", "blind"] = "once"
    asks: Said | None = None
    refused: bool = False


class Ask(BaseModel):
    """A question to people; the body if they approve. With `peer`, what they approve is done."""

    do: Literal["ask"] = "ask"
    answer: Said | Literal["expired"] = "approved"
    peer: Literal["once", "found", "blind"] | None = None
    body: list[Node] = []


class Word(BaseModel):
    """Waits for a signal, which may not come in time."""

    do: Literal["word"] = "word"
    comes: bool = True


class Sleep(BaseModel):
    do: Literal["sleep"] = "sleep"
    seconds: int = 30


class Value(BaseModel):
    do: Literal["value"] = "value"
    of: Literal["uuid", "random", "now"] = "random"


class Child(BaseModel):
    do: Literal["child"] = "child"
    body: list[Node] = []
    fails: bool = False


class Several(BaseModel):
    """Waits for any or all of a few signals, a timer and a child."""

    do: Literal["several"] = "several"
    all: bool = False
    comes: list[bool] = [True]
    timer: bool = False
    child: bool = False


class Try(BaseModel):
    do: Literal["try"] = "try"
    body: list[Node] = []


class Loop(BaseModel):
    do: Literal["loop"] = "loop"
    times: int = 2
    body: list[Node] = []


class Branch(BaseModel):
    """By what came before."""

    do: Literal["branch"] = "branch"
    then: list[Node] = []
    otherwise: list[Node] = []


class Undo(BaseModel):
    do: Literal["undo"] = "undo"


Node = Annotated[
    Step | Write | Act | Ask | Word | Sleep | Value | Child | Several | Try | Loop | Branch | Undo,
    Field(discriminator="do"),
]


class Program(BaseModel):
    """What a run is asked to do; `is_child`: nothing that differs from run to run decides its way."""

    body: list[Node] = []
    fails: bool = False
    is_child: bool = False


for _model in (Ask, Child, Try, Loop, Branch, Program):
    _model.model_rebuild()


class Told(BaseModel):
    """The output: what must be the same in each run of a program, and what is this run's own."""

    same: list[str]
    own: list[str]


# --- the interpreter -------------------------------------------------------------------------------


def _made(durability: Durability) -> Callable[[int, bool], int]:
    retry = Retry(attempts=2, first_seconds=3) if durability != "none" else None

    @step(durability=durability, retry=retry)
    def result(n: int, fails: bool) -> int:
        if fails:
            raise ValueError(f"step {n}")
        return n + 1

    return result


STEPS: dict[Durability, Callable[[int, bool], int]] = {
    "async": _made("async"),
    "sync": _made("sync"),
    "none": _made("none"),
}


class Interpreter:
    """Walks through a program; what it meets decides where it goes on."""

    def __init__(self, ctx: Context, program: Program) -> None:
        self.ctx, self.program = ctx, program
        self.told, self.own = list[str](), list[str]()
        self.sum = self.names = 0

    def tell(self, what: Any) -> None:
        self.told.append(str(what))

    def name(self, answer: str) -> str:
        """A new one, the same in each run."""
        self.names += 1
        return f"{self.names} {answer}"

    def block(self, body: list[Node]) -> None:
        for node in body:
            getattr(self, f"do_{node.do}")(node)

    def do_step(self, node: Step) -> None:
        self.sum += self.ctx.step(self.name("step"), STEPS[node.durability], self.sum, node.fails)
        self.tell(self.sum)

    def do_write(self, node: Write) -> None:
        owner, name = self.ctx.run_id, self.name("write")

        def write(fails: bool) -> int:  # whose row it is, is no argument: those are compared
            made = Group.objects.create(name=f"{owner} {name}")
            if fails:
                raise ValueError(f"wrote {name}, and was sorry")
            return Group.objects.filter(pk=made.pk).count()

        self.tell(self.ctx.transaction(name, write, node.fails))

    def do_act(self, node: Act) -> None:
        effect = GUARDED[node.peer] if node.asks else PLAIN[node.peer]
        order = Order(n=self.sum, refused=node.refused)
        receipt = self.ctx.effect(self.name(node.asks or "act"), effect, order, title="May I?")
        self.tell(f"{receipt.kind} {receipt.request.n}")

    def do_ask(self, node: Ask) -> None:
        order, effect = Order(n=self.sum), GUARDED[node.peer] if node.peer else None
        decision = self.ctx.approval(
            self.name(node.answer), policy="model-one", action=order, effect=effect, title="May I?"
        )
        self.tell(decision.outcome)
        if decision and effect:
            receipt = self.ctx.effect(self.name("agreed"), effect, order, approved_by=decision)
            self.tell(f"{receipt.kind} {receipt.request.n}")
        if decision:
            self.block(node.body)

    def do_word(self, node: Word) -> None:
        came = self.ctx.wait(self._signal(node.comes))
        self.sum += len(self.told)
        self.tell(type(came).__name__)

    def _signal(self, comes: bool, expires: bool = True) -> Handle[Any]:
        name = self.name("comes" if comes else "silent")
        return self.ctx.signal(name, expires_in=timedelta(hours=1)) if expires else self.ctx.signal(name)

    def do_sleep(self, node: Sleep) -> None:
        self.ctx.sleep(self.name("sleep"), timedelta(seconds=node.seconds))

    def do_value(self, node: Value) -> None:
        if node.of == "now":
            self.own.append(self.ctx.now().isoformat())
        elif node.of == "uuid":
            self.own.append(str(self.ctx.uuid("one")))
        else:
            n = self.ctx.random("one").randrange(1_000_000)
            self.own.append(str(n))
            self.sum += 0 if self.program.is_child else n

    def do_child(self, node: Child) -> None:
        inner = Program(body=node.body, fails=node.fails, is_child=True)
        self.tell(self.ctx.wait(self.ctx.child(self.name("child"), program, inner)).same)

    def do_several(self, node: Several) -> None:
        handles = [self._signal(comes, expires=node.all) for comes in node.comes]
        if node.timer or not (node.all or any(node.comes)):
            handles.append(self.ctx.timer(self.name("timer"), timedelta(minutes=10)))
        if node.child and node.all:
            inner = Program(body=[Step(), Act(peer="found")], is_child=True)
            handles.append(self.ctx.child(self.name("child"), program, inner))
        if node.all:
            self.tell([type(value).__name__ for value in self.ctx.wait_all(*handles)])
        else:
            self.tell(self.ctx.wait_any(*handles).name)

    def do_try(self, node: Try) -> None:
        try:
            self.block(node.body)
        except CAUGHT as error:
            self.tell(type(error).__name__)

    def do_loop(self, node: Loop) -> None:
        for _ in range(node.times):
            self.block(node.body)

    def do_branch(self, node: Branch) -> None:
        self.block(node.then if self.sum % 2 else node.otherwise)

    def do_undo(self, node: Undo) -> None:
        self.ctx.compensate("as asked")
        self.tell("undone")


def _interpret(ctx: Context, asked: Program) -> Told:
    run = Interpreter(ctx, asked)
    run.block(asked.body)
    if asked.fails:
        raise Failed("as asked")
    return Told(same=run.told, own=run.own)


@workflow(name="model-program", version=1)
def program(ctx: Context, asked: Program) -> Told:
    return _interpret(ctx, asked)


@workflow(name="model-undoing", version=1, compensate=True)
def undoing(ctx: Context, asked: Program) -> Told:
    return _interpret(ctx, asked)


# --- strategies ------------------------------------------------------------------------------------

_seldom = st.sampled_from([False, False, False, True])
_said = st.sampled_from(["approved", "approved", "approved", "rejected", "changes_requested"])
_answers = _said | st.just("expired")  # where the policy has a deadline
_peers = st.sampled_from(["once", "found", "blind"])
_leaves = st.one_of(
    st.builds(Step, durability=st.sampled_from(["async", "async", "sync", "none"]), fails=_seldom),
    st.builds(Write, fails=_seldom),
    st.builds(Act, peer=_peers, asks=_said, refused=_seldom),
    st.builds(Act, peer=_peers),
    st.builds(Ask, answer=_answers, peer=st.none() | _peers),
    st.builds(Word, comes=st.booleans()),
    st.builds(Sleep),
    st.builds(Value, of=st.sampled_from(["uuid", "random", "now"])),
    st.builds(
        Several,
        all=st.booleans(),
        comes=st.lists(st.booleans(), min_size=1, max_size=3),
        timer=st.booleans(),
        child=st.booleans(),
    ),
    st.builds(Undo),
)


def _inner(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(nodes, min_size=1, max_size=3)
    return st.one_of(
        st.builds(Try, body=body),
        st.builds(Try, body=body),
        st.builds(Loop, times=st.integers(2, 3), body=body),
        st.builds(Branch, then=body, otherwise=body),
        st.builds(Ask, answer=_answers, body=body),
        st.builds(Child, body=body, fails=_seldom),
    )


programs = st.builds(
    Program,
    body=st.lists(st.recursive(_leaves, _inner, max_leaves=4), min_size=2, max_size=5),
    fails=_seldom,
)
