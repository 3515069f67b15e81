"""CEL over plain JSON: what it answers, what it refuses, that it never hangs or dies."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

from approvals.policy import ConditionError, condition_holds, condition_problems

ACTION: dict[str, Any] = {
    "n": 4999,
    "f": 1.5,
    "s": "x",
    "nothing": None,
    "yes": True,
    "list": [1, 2],
    "map": {"k": 1},
    "rows": [{"a": 1}, {"b": 2}],
    "big": 2**70,
    "same": 2**70,
    "near": 2**70 + 1,
    "long": 2**63 - 1,
    "nan": float("nan"),
    "inf": float("inf"),
    "due": "2024-03-05T06:07:08Z",
    "price": "12.50",
    "uni": "é",
}


def holds(text: str, action: Any = None) -> bool:
    return condition_holds(text, {"action": ACTION if action is None else action})


@pytest.mark.parametrize(
    "text",
    [
        "action.n < 5000",
        "action.n < 5000.5",
        "action.n == 4999.0",
        "action.f < 2",
        "action.s == 'x'",
        "!(action.s == 3)",
        "action.nothing == null",
        "action.yes",
        "2 in action.list",
        "!(3 in action.list)",
        "'k' in action.map",
        "has(action.n) && !has(action.gone)",
        "action.list.exists(i, i == 2)",
        "action.list.all(i, i < 3)",
        "true || action.gone",
        "action.gone == 1 || true",
        "!(false && action.gone)",
        "size(action.uni) == 2",  # a quirk of the evaluator: bytes, not characters
        "timestamp(action.due) > timestamp('2024-01-01T00:00:00Z')",
        "timestamp(action.due).getFullYear() == 2024",
        "double(action.price) < 13.0",
        "action.long == 9223372036854775807",
        "action.big == action.same",
        "action.big != action.near",
        "action.big != 5",
        "has(action.big)",
        "action.inf > 5000",
    ],
)
def test_holds(text: str) -> None:
    assert holds(text) is True
    assert holds(f"!({text})") is False


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("action.gone < 3", "there is no field gone"),
        ("action.gone != 3", "there is no field gone"),
        ("!(action.gone == 3)", "there is no field gone"),
        ("has(action.gone.deeper)", "there is no field gone"),
        ("action.map[action.s] == 1", "there is no such field"),
        ("action.rows.all(r, r.a == 1)", "there is no field a"),
        ("action.s < 3", "different kinds"),
        ("action.price < 13.0", "different kinds"),
        ("action.nothing < 3", "different kinds"),
        ("action.nothing.x == 3", "different kinds"),
        ("action.big > 3", "different kinds"),
        ("action.big < action.near", "different kinds"),
        ("action.nan < 5000", "different kinds"),
        ("!action.s", "different kinds"),
        ("action.s ? true : false", "different kinds"),
        ("'fin' in 'finance'", "different kinds"),
        ("action.list[5] == 1", "a list is too short"),
        ("action.n / 0 == 1", "it divides by zero"),
        ("action.long + 1 > 0", "a number is too large"),
        ("timestamp('soon') < timestamp(action.due)", "it failed on these values"),
        ("int(action.s) == 1", "it failed on these values"),
        ("action.s.matches('(')", "it failed on these values"),
        ("other == 1", "it failed on these values"),
        ("action.n", "its result is a int"),
        ("action.s", "its result is a str"),
        ("'true'", "its result is a str"),
        ("1", "its result is a int"),
        ("action.nothing", "its result is a NoneType"),
        ("action.list", "its result is a list"),
        ("action <", "not valid CEL"),
        ("true" + " && true" * 200, "at most 1000"),
    ],
)
def test_what_is_not_clear_is_an_error(text: str, because: str) -> None:
    with pytest.raises(ConditionError, match=because):
        holds(text)


def test_an_error_never_quotes_values() -> None:
    secret = {"key": "hunter2", "n": 9223372036854775807, "m": {}}
    for text in (
        "action.m[action.key] == 1",
        "action.n + 1 > 0",
        "action.key.matches(action.key + '(')",
    ):
        with pytest.raises(ConditionError) as caught:
            holds(text, secret)
        assert "hunter2" not in str(caught.value)
        assert "922337" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {1, 2}}, b"x", "\ud800", 1j])
def test_only_plain_json(value: Any) -> None:
    with pytest.raises(ConditionError):
        holds("true", {"value": value})


@pytest.mark.parametrize("huge", [10**400, -(10**400), 2**63, -(2**63) - 1])
def test_integers_beyond_64_bits_never_become_floats(huge: int) -> None:
    assert holds("action.n != 5", {"n": huge})
    for text in ("action.n < 5000", "action.n > 5000", "action.n + 1 > 0"):
        with pytest.raises(ConditionError):
            holds(text, {"n": huge})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"x": value}
    return value


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_deep_values_are_refused_not_fatal(depth: int) -> None:
    value: Any = []
    for _ in range(depth):
        value = [value]
    for deep in (value, nested(depth)):
        with pytest.raises(ConditionError, match="too deeply nested"):
            holds("true", deep)
    assert holds("true", nested(60))


@pytest.mark.parametrize("value", [[0] * 100_001, {str(i): i for i in range(100_001)}, "x" * 20_000_000])
def test_large_values_are_refused(value: Any) -> None:
    with pytest.raises(ConditionError, match="too large"):
        holds("true", value)


def test_fifty_thousand_keys_and_two_megabytes_are_fine() -> None:
    begun = time.process_time()
    assert holds("action.k7 == 7", {f"k{i}": i for i in range(50_000)})
    assert holds("size(action.s) == 2000000", {"s": "x" * 2_000_000})
    assert time.process_time() - begun < 2


def test_lists_within_lists_have_a_budget() -> None:
    text = "action.l.all(x, action.l.all(y, x + y >= 0))"
    assert holds(text, {"l": list(range(300))})
    with pytest.raises(ConditionError, match="lists within lists"):
        holds(text, {"l": list(range(3_000))})
    assert holds("action.l.all(x, x >= 0) && action.l.exists(x, x == 2999)", {"l": list(range(3_000))})


@pytest.mark.parametrize(
    "text",
    [
        "!" * 999 + "x",
        "-" * 900 + "1 == 1",
        "action" + ".b" * 490,
        "action" + "[0]" * 330,
        "[" * 499 + "]" * 499,
        "1" + "+1" * 490 + " > 0",
        "size(" * 160 + "action" + ")" * 160,
        "true ? true : " * 70 + "true",
        "{1:" * 240 + "1" + "}" * 240,
        "é" * 900,
        "a b " * 200,
    ],
)
def test_the_longest_expressions_are_never_fatal(text: str) -> None:
    assert all(len(problem) < 700 for problem in condition_problems(text, ("action",)))
    with contextlib.suppress(ConditionError):
        holds(text)


def test_brackets_alone_are_not_nesting() -> None:
    text = "(action.l.all(x, ((x) + (0)) >= (0))) && ((true))"
    assert holds(text, {"l": list(range(3_000))})


class PanicException(BaseException):
    """As the evaluator's native code raises it."""


class Program:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def execute(self, values: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (PanicException("overflow"), ConditionError),
        (MemoryError(), ConditionError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(), SystemExit),
    ],
)
def test_a_panic_denies_and_an_interrupt_passes(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, seen: type[BaseException]
) -> None:
    def broken(text: str) -> Any:
        raise error

    monkeypatch.setattr("cel.compile", lambda text: Program(error))
    with pytest.raises(seen):
        holds(f"true || '{type(error).__name__}' == 'executed'")
    monkeypatch.setattr("cel.compile", broken)
    with pytest.raises(seen):
        holds(f"true || '{type(error).__name__}' == 'compiled'")


def test_many_threads_share_one_compiled_condition() -> None:
    answers: list[bool] = []

    def ask(limit: int) -> None:
        answers.extend(holds("action.n < 50", {"n": n}) == (n < 50) for n in range(limit))

    threads = [threading.Thread(target=ask, args=(100,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 800
    assert all(answers)
