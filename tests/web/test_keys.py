"""Single letters as commands can be switched off: a form, a cookie, no script."""

from __future__ import annotations

import pytest
from django.test import Client


def offers(client: Client) -> str:
    """What the inbox's button would set."""
    html = client.get("/").content.decode()
    return "off" if 'name="keys" value="off"' in html else "on" if 'name="keys" value="on"' in html else ""


def test_they_are_off_for_good_and_on_again(vera: Client) -> None:
    assert offers(vera) == "off" and "data-keys" not in vera.get("/runs/").content.decode()
    answer = vera.post("/keys/", {"keys": "off"})
    assert (answer.status_code, answer["Location"]) == (303, "/")
    cookie = answer.cookies["single_keys"]
    assert cookie["httponly"] and cookie["samesite"] == "Lax" and cookie["max-age"] > 30_000_000
    assert offers(vera) == "on" and 'data-keys="off"' in vera.get("/runs/?part=rail").content.decode()
    vera.post("/keys/", {"keys": "on"})
    assert offers(vera) == "off" and "data-keys" not in vera.get("/runs/").content.decode()


def test_a_secure_site_keeps_it_in_a_secure_cookie(vera: Client, settings: pytest.FixtureRequest) -> None:
    settings.SESSION_COOKIE_SECURE = True  # type: ignore[attr-defined]
    assert vera.post("/keys/", {"keys": "off"}).cookies["single_keys"]["secure"]


def test_nonsense_leaves_them_on_and_looking_changes_nothing(vera: Client, client: Client) -> None:
    assert vera.post("/keys/", {"keys": "\x00<b>"}).cookies["single_keys"].value == "on"
    assert vera.get("/keys/").status_code == 405 and offers(vera) == "off"
    assert client.post("/keys/")["Location"] == "/sign-in/?next=/"
