"""Secrets in messages and forms: sealed at rest, masked where they are shown, clear to the workflow alone."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated, Any

import pytest
from django.apps import apps
from pydantic import BaseModel, Field, Secret, SecretStr

from approvals import Context, queries
from approvals.errors import InvalidInput, NotSerializable
from approvals.models import Message, Wait
from approvals.sealing import MASKED
from approvals.services import decisions, runs
from approvals.testing import drive, pending, people
from tests.engine.make import flow, ran
from tests.values.models import ShowsAlways

pytestmark = pytest.mark.usefixtures("checked")

HIDDEN = "hunter2-ünique"


@pytest.fixture(autouse=True)
def _nowhere(checked):
    yield
    assert_nowhere()


class Key(BaseModel):
    value: Annotated[SecretStr, Field(alias="theValue", max_length=40)]
    more: dict[str, SecretStr] = {}


class Login(BaseModel):
    user: str
    password: SecretStr
    keys: list[Key] = []
    born: Secret[date] | None = None


LOGIN = Login(
    user="ann",
    password=SecretStr(HIDDEN),
    keys=[Key(theValue=SecretStr(HIDDEN), more={"a": SecretStr(HIDDEN)})],  # type: ignore[call-arg]
    born=Secret[date](date(2001, 2, 3)),
)
SENT = {
    "user": "ann",
    "password": HIDDEN,
    "keys": [{"theValue": HIDDEN, "more": {"a": HIDDEN}}],
    "born": "2001-02-03",
}
EITHER = pytest.mark.parametrize("payload", [SENT, LOGIN], ids=["json", "model"])
EARLY = pytest.mark.parametrize("early", [True, False], ids=["early", "in time"])


@flow
def login(ctx: Context, n: int) -> list[Any]:
    """Says whether it was given exactly what was sent; the secret itself it tells nobody."""
    ctx.step("before", len, "")
    found = ctx.wait(ctx.signal("login", schema=Login)).payload
    return [found == LOGIN, type(found.password).__name__, found.user]


@flow
def plain(ctx: Context, n: int) -> bool:
    found = ctx.wait(ctx.signal("login")).payload
    return bool(found == SENT)


@flow
def form(ctx: Context, n: int) -> list[Any]:
    told = ctx.approval("ask", policy="one-reviewer", action=n, title="t", form=Login)
    return [told.outcome, told.form == LOGIN]


def assert_nowhere() -> None:
    """No column of any table, and nothing that is shown, has the secret in clear text."""
    for model in apps.get_app_config("approvals").get_models():
        for row in model._default_manager.values():
            text = json.dumps(row, default=str, ensure_ascii=False)
            assert "hunter2" not in text and "2001-02-03" not in text, (model, row)
    for shown in queries.runs()["items"]:
        text = json.dumps(queries.run(shown["id"]), ensure_ascii=False)
        assert "hunter2" not in text and "2001-02-03" not in text


def started(of: Any, *, early: bool) -> Any:
    return runs.start(of, 0) if early else ran(of)


@EITHER
@EARLY
def test_a_secret_of_a_message_is_sealed_and_comes_back(payload: Any, early: bool) -> None:
    run = started(login, early=early)
    runs.signal(run.id, "login", payload, message_id="m")
    assert_nowhere()
    drive()
    assert runs.get(run.id).output == [True, "SecretStr", "ann"] and runs.replay(run.id).same
    entries = queries.run(run.id)["entries"]
    (closed,) = (e["data"]["value"] for e in entries if e["kind"] == "wait.resolve")
    assert closed["payload"]["password"] == MASKED and closed["payload"]["user"] == "ann"
    assert closed["payload"]["keys"] == [{"theValue": MASKED, "more": {"a": MASKED}}]


@EITHER
def test_what_comes_early_is_sealed_whole(payload: Any) -> None:
    run = runs.start(login, 0)
    runs.signal(run.id, "login", payload)
    assert "ann" not in Message.objects.get().payload
    drive()
    assert "ann" in Message.objects.get().payload


@EITHER
@EARLY
def test_the_same_message_again_is_recognised(payload: Any, early: bool) -> None:
    run = started(login, early=early)
    for _ in range(2):
        runs.signal(run.id, "login", payload, message_id="m")
        runs.signal(run.id, "login", SENT, message_id="m")
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "login", {**SENT, "password": "other"}, message_id="m")
    drive()
    runs.signal(run.id, "login", payload, message_id="m")
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "login", {**SENT, "password": "other"}, message_id="m")
    assert Message.objects.count() == 1 and runs.get(run.id).output[0] is True


@EARLY
def test_a_wait_without_a_schema_gets_what_a_model_says_and_it_is_sealed(early: bool) -> None:
    run = started(plain, early=early)
    runs.signal(run.id, "login", LOGIN)
    drive()
    assert runs.get(run.id).output is True


@pytest.mark.parametrize("odd", [{"$secret": "x"}, {"$bytes": "x"}, {"a": {"$$secret": 1}}, "$secret", None])
@EARLY
def test_a_message_cannot_pretend_to_be_sealed(odd: Any, early: bool) -> None:
    run = started(echo, early=early)
    runs.signal(run.id, "go", odd, message_id="m")
    drive()
    runs.signal(run.id, "go", odd, message_id="m")
    assert runs.get(run.id).output == odd


@flow
def echo(ctx: Context, n: int) -> Any:
    return ctx.wait(ctx.signal("go")).payload


def test_a_refusal_quotes_no_secret() -> None:
    run = ran(login)
    for wrong in ({"keys": [{"theValue": HIDDEN * 9}]}, {"user": 1}, {"password": [HIDDEN]}):
        with pytest.raises(InvalidInput) as caught:
            runs.signal(run.id, "login", {**SENT, **wrong})
        assert "hunter2" not in f"{caught.value} {caught.value.values}"
    drive()


def test_an_early_message_that_does_not_fit_stays_sealed() -> None:
    run = runs.start(login, 0)
    runs.signal(run.id, "login", {"password": HIDDEN}, message_id="m")
    drive()
    assert Message.objects.get().status == "late" and Wait.objects.get().status == "open"
    runs.signal(run.id, "login", {"password": HIDDEN}, message_id="m")
    with pytest.raises(InvalidInput):
        runs.signal(run.id, "login", {"password": "other"}, message_id="m")


def test_a_model_that_would_show_or_lose_its_secret_is_refused() -> None:
    run = runs.start(plain, 0)
    with pytest.raises(NotSerializable) as caught:
        runs.signal(run.id, "login", ShowsAlways(password=SecretStr(HIDDEN)))
    assert "hunter2" not in f"{caught.value} {caught.value.values}"


@EITHER
def test_a_secret_of_a_form_is_sealed_and_comes_back(payload: Any) -> None:
    run = ran(form)
    (asked,) = pending(run)
    said = {"actor": people().reviewers[0], "outcome": "approved", "digest": asked.digest}
    with pytest.raises(InvalidInput) as caught:
        decisions.decide(asked.id, form={**SENT, "password": [HIDDEN]}, **said)
    assert "hunter2" not in f"{caught.value} {caught.value.values}"
    decisions.decide(asked.id, form=payload, **said)
    drive()
    assert runs.get(run.id).output == ["approved", True]
    (closed,) = (e["data"]["value"] for e in queries.run(run.id)["entries"] if e["kind"] == "wait.resolve")
    assert closed["form"]["password"] == MASKED and closed["form"]["user"] == "ann"
