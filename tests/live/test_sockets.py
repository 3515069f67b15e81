"""The websocket itself: who may open it, what it understands, and that rights end while it is open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.db import transaction

from approvals import live, outbox
from approvals.models import Run
from approvals.outbox import pages
from approvals.services import runs
from approvals.testing import drive, people
from tests.live.browser import HOST, Socket, page
from tests.live.conftest import cookie
from tests.live.flows import anybodys, insiders

pytestmark = pytest.mark.usefixtures("engine", "teller")


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Runs a scene on a loop of its own, within a bound; what happened before it has been told by then."""
    assert pages._teller.wait_until_told(10)
    asyncio.run(asyncio.wait_for(scene, 20))


async def change(what: Callable[[], Any]) -> None:
    """Something that somebody does meanwhile."""
    await sync_to_async(what)()


@pytest.mark.parametrize("origin", ["http://elsewhere.example", f"http://{HOST}.elsewhere.example", None])
def test_another_site_s_page_is_refused(origin: str | None) -> None:
    session = cookie(people().operator)

    async def scene() -> None:
        assert not await Socket(session, origin=origin).opens()
        assert await Socket(session).opens()

    play(scene())


def test_who_is_not_signed_in_or_not_active_is_refused() -> None:
    team = people()
    session = cookie(team.operator)
    team.operator.is_active = False
    team.operator.save()

    async def scene() -> None:
        for cookies in ("", "sessionid=nonsense", session):
            assert not await Socket(cookies).opens()

    play(scene())


def test_there_is_one_address() -> None:
    session = cookie(people().operator)

    async def scene() -> None:
        for path in ("/ws/elsewhere/", "/", "/ws/live"):
            assert not await Socket(session, path=path).opens()

    play(scene())


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "topics",
        "[]",
        "{}",
        '{"topics": "lists"}',
        '{"topics": null}',
        json.dumps({"topics": ["lists"] * (live.MOST_TOPICS + 1)}),
        json.dumps({"topics": ["x" * live.MOST_CHARACTERS]}),
        "[" * 3000,
        b"\xff",
    ],
)
def test_what_is_no_list_of_topics_ends_the_socket(frame: str | bytes) -> None:
    session = cookie(people().outsider)

    async def scene() -> None:
        async with page(session) as socket:
            await socket.send(frame)
            assert await socket.closes() == live.NOT_UNDERSTOOD

    play(scene())


def test_a_topic_of_no_known_form_is_not_joined() -> None:
    run = runs.start(anybodys, 1)
    session = cookie(people().outsider)
    odd = [
        "list",
        "run:",
        "run:1",
        f"run:{str(run.id).upper()}",
        f"{{{run.id}}}",
        str(run.id),
        7,
        None,
        ["lists"],
    ]

    async def scene() -> None:
        async with page(session) as socket:
            assert await socket.follow(*odd, f"run:{run.id}") == {"joined": [f"run:{run.id}"]}

    play(scene())


def test_a_run_that_is_not_theirs_looks_like_one_that_is_not_there() -> None:
    team = people()
    hidden, own = runs.start(insiders, 1), runs.start(insiders, 1, requester=team.outsider)
    session = cookie(team.outsider)

    async def scene() -> None:
        async with page(session) as socket:
            asked = (f"run:{hidden.id}", f"run:{uuid4()}", f"run:{own.id}")
            assert await socket.follow(*asked) == {"joined": [f"run:{own.id}"]}

    play(scene())


def test_the_last_message_says_what_is_followed() -> None:
    first, second = runs.start(anybodys, 1), runs.start(anybodys, 1)
    session = cookie(people().outsider)

    async def scene() -> None:
        async with page(session) as socket:
            await socket.follow("lists", f"run:{first.id}")
            assert await socket.follow(f"run:{second.id}") == {"joined": [f"run:{second.id}"]}
            await change(lambda: outbox.changed(first.id))
            assert await socket.hears_nothing()
            await change(lambda: outbox.changed(second.id))
            assert await socket.hear() == {"changed": [f"run:{second.id}"]}

    play(scene())


def test_what_is_told_is_only_what_changed() -> None:
    run = runs.start(anybodys, 1)
    session = cookie(people().outsider)

    async def scene() -> None:
        async with page(session) as socket:
            await socket.follow(f"run:{run.id}")
            await change(drive)
            assert await socket.hear() == {"changed": [f"run:{run.id}"]}

    play(scene())


def test_of_many_runs_a_page_hears_its_own() -> None:
    run = runs.start(anybodys, 1)
    session = cookie(people().outsider)

    def change_many() -> None:
        with transaction.atomic():
            for other in range(pages._MOST_RUNS // 2):
                outbox.changed(UUID(int=other), lists=False)
            outbox.changed(run.id, lists=False)

    async def scene() -> None:
        async with page(session) as socket:
            await socket.follow(f"run:{run.id}")
            await change(change_many)
            assert await socket.hear() == {"changed": [f"run:{run.id}"]}
            await socket.follow("lists")
            await change(change_many)
            assert await socket.hears_nothing(2 * pages.SELDOM_SECONDS)

    play(scene())


def test_a_disabled_account_s_socket_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_AGAIN_SECONDS", 0.1)
    account = people().outsider
    session = cookie(account)

    def disable() -> None:
        account.is_active = False
        account.save()

    closes(session, disable)


def test_the_socket_of_a_session_that_is_over_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_AGAIN_SECONDS", 0.1)
    closes(cookie(people().outsider), lambda: Session.objects.all().delete())


def closes(session: str, do: Callable[[], Any]) -> None:
    """The socket of this session closes when that is done, and not before."""

    async def scene() -> None:
        async with page(session) as socket:
            await socket.follow("lists")
            assert await socket.hears_nothing()
            await change(do)
            assert await socket.closes() == live.SIGNED_OUT

    play(scene())


def test_a_run_that_may_be_seen_no_more_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_AGAIN_SECONDS", 0.1)
    account = people().outsider
    account.groups.add(Group.objects.get_or_create(name="insiders")[0])
    hidden, open_to_all = runs.start(insiders, 1), runs.start(anybodys, 1)
    session = cookie(account)

    async def scene() -> None:
        async with page(session) as socket:
            assert len((await socket.follow(f"run:{hidden.id}", f"run:{open_to_all.id}"))["joined"]) == 2
            await change(account.groups.clear)
            looked = asyncio.Event()
            real = live.Live._follow

            async def follow_and_say(self: live.Live, *asked: Any) -> bool:
                answer = await real(self, *asked)
                looked.set()
                return answer

            monkeypatch.setattr(live.Live, "_follow", follow_and_say)
            await looked.wait()
            await change(lambda: outbox.changed(hidden.id))
            await change(lambda: outbox.changed(open_to_all.id))
            assert await socket.hear() == {"changed": [f"run:{open_to_all.id}"]}

    play(scene())


def test_a_look_at_rights_drops_nothing_that_is_just_being_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.start(anybodys, 1)
    session = cookie(people().outsider)
    real = live.Live._follow
    looks: list[asyncio.Task[None]] = []
    calls = 0

    async def follow(self: live.Live, *asked: Any) -> bool:
        """The page's message waits for the lock until a look waits behind it."""
        nonlocal calls
        calls += 1
        if calls == 1:
            await self._changing.acquire()
            monkeypatch.setattr(live, "LOOK_AGAIN_SECONDS", 0)
            looks.append(asyncio.create_task(self._look_again()))
        elif calls == 2:
            monkeypatch.setattr(live, "LOOK_AGAIN_SECONDS", 60)
            self._changing.release()
        return await real(self, *asked)

    async def scene() -> None:
        async with page(session) as socket:
            monkeypatch.setattr(live.Live, "_follow", follow)
            assert await socket.follow(f"run:{run.id}") == {"joined": [f"run:{run.id}"]}
            await change(lambda: None)  # behind the look, whose questions the same thread asks
            await change(lambda: None)
            await change(lambda: outbox.changed(run.id))
            assert await socket.hear() == {"changed": [f"run:{run.id}"]}
            looks[0].cancel()

    play(scene())


def test_without_its_channel_layer_a_page_has_no_socket_and_no_error(settings: Any, caplog: Any) -> None:
    session = cookie(people().outsider)
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [{"address": "unix:///nowhere.sock", "socket_timeout": None}]},
        }
    }

    async def scene() -> None:
        assert not await Socket(session).opens()

    play(scene())
    assert any("a page's websocket ends, it looks by itself" in r.message for r in caplog.records)
    assert Run.objects.count() == 0
