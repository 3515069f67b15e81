"""Signing in and out: one door, also to the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client, override_settings

from approvals.testing import people

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def quick() -> Any:
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture
def rita() -> Any:
    user = people().requester
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(client: Client, user: Any, password: str = PASSWORD, **more: str) -> Any:
    return client.post("/sign-in/", {"username": user.get_username(), "password": password, **more})


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_the_page_names_the_product_in_a_sentence(client: Client) -> None:
    answer = client.get("/sign-in/")
    assert answer.status_code == 200
    assert "wait for a person’s yes" in answer.content.decode()
    assert not Session.objects.exists()


def test_name_and_password_open_the_inbox(client: Client, rita: Any) -> None:
    answer = sign_in(client, rita)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/").status_code == 200


def test_whoever_was_sent_here_goes_on_to_where_they_wanted(client: Client, rita: Any) -> None:
    sent = client.get("/runs/?status=failed&q=a+b")
    assert sent.status_code == 302
    assert (
        'name="next" value="/runs/?status=failed&amp;q=a+b"' in client.get(sent["Location"]).content.decode()
    )
    assert sign_in(client, rita, next="/runs/?status=failed")["Location"] == "/runs/?status=failed"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        r"/\evil.example/",
        "javascript:alert(1)",
        "http:///evil",
        "\x00",
    ],
)
def test_nobody_is_led_to_another_site(client: Client, rita: Any, elsewhere: str) -> None:
    assert "evil" not in client.get("/sign-in/", {"next": elsewhere}).content.decode()
    assert sign_in(client, rita, next=elsewhere)["Location"] == "/"
    assert client.get("/sign-in/", {"next": elsewhere})["Location"] == "/"


@pytest.mark.parametrize(
    "door", ["/sign-out/", "/sign-in/", "/sign-in/?next=/runs/", "/admin/logout/", "/sign-out/?next=/runs/"]
)
def test_nobody_is_led_to_a_door_in_or_out(client: Client, rita: Any, door: str) -> None:
    assert sign_in(client, rita, next=door)["Location"] == "/"
    assert client.get("/sign-in/", {"next": door})["Location"] == "/"
    assert is_signed_in(client)


def test_a_wrong_password_is_told_and_only_the_name_is_kept(client: Client, rita: Any) -> None:
    answer = sign_in(client, rita, "guessed<1>", next="/runs/")
    text = answer.content.decode()
    assert answer.status_code == 422
    assert 'role="alert"' in text and "Name or password is not correct" in text
    assert 'value="rita"' in text and "guessed" not in text
    assert 'name="next" value="/runs/"' in text
    assert not is_signed_in(client)


def test_a_disabled_account_is_answered_as_a_wrong_password_is(client: Client, rita: Any) -> None:
    wrong = sign_in(client, rita, "guessed").context["form"].errors.as_json()
    rita.is_active = False
    rita.save()
    assert sign_in(client, rita).context["form"].errors.as_json() == wrong
    assert not is_signed_in(client)


@pytest.mark.parametrize(
    ("name", "password", "told"),
    [
        ("", "", "This field is required."),
        ("rita\x00", "x", "Null characters are not allowed."),
        ("r" * 100_000, "x", "Name or password is not correct"),
        ("<script>alert(1)</script>", "x", "Name or password is not correct"),
        ("rita", "x\x00" * 1000, "Null characters are not allowed."),
    ],
)
def test_whatever_is_typed_is_answered_in_words(client: Client, name: str, password: str, told: str) -> None:
    answer = client.post("/sign-in/", {"username": name, "password": password})
    assert answer.status_code == 422
    assert told in answer.content.decode() and "<script>alert" not in answer.content.decode()


def test_a_form_without_this_site_s_sign_is_refused_with_a_page_that_helps(rita: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    answer = sign_in(client, rita)
    assert answer.status_code == 403
    assert "older than your last sign-in" in answer.content.decode()
    assert not is_signed_in(client)


def test_whoever_is_signed_in_goes_on_at_once(client: Client, rita: Any) -> None:
    client.force_login(rita)
    assert client.get("/sign-in/?next=/runs/")["Location"] == "/runs/"
    assert client.get("/sign-in/")["Location"] == "/"


def test_only_a_post_signs_out(client: Client, rita: Any) -> None:
    client.force_login(rita)
    assert client.get("/sign-out/").status_code == client.head("/sign-out/").status_code == 405
    client.options("/sign-out/")
    assert is_signed_in(client)
    answer = client.post("/sign-out/")
    assert (answer.status_code, answer["Location"]) == (302, "/sign-in/")
    assert not is_signed_in(client)
    assert client.get("/")["Location"] == "/sign-in/?next=/"


def test_a_session_ends_with_its_account(client: Client, rita: Any) -> None:
    client.force_login(rita)
    rita.is_active = False
    rita.save()
    assert client.get("/")["Location"] == "/sign-in/?next=/"
    assert client.get("/?part=rail").status_code == 401


def test_the_admin_s_door_is_this_one(client: Client, rita: Any) -> None:
    asked = client.get("/admin/approvals/run/")
    led = client.get(asked["Location"])
    assert led["Location"] == "/sign-in/?next=/admin/approvals/run/"
    rita.is_staff = rita.is_superuser = True
    rita.save()
    assert sign_in(client, rita, next="/admin/approvals/run/")["Location"] == "/admin/approvals/run/"
    assert client.get("/admin/approvals/run/").status_code == 200
    assert client.post("/admin/logout/")["Location"] == "/sign-in/"
    assert not is_signed_in(client)


def test_who_is_no_staff_is_told_so_and_not_sent_to_and_fro(client: Client, rita: Any) -> None:
    client.force_login(rita)
    answer = client.get("/admin/", follow=True)
    assert answer.status_code == 403
    assert len(answer.redirect_chain) == 1
    assert "The admin is for staff, and rita is not." in answer.content.decode()
    assert client.post("/admin/login/", {"username": "a", "password": "b"}).status_code == 405


def test_who_is_signed_in_and_led_back_to_sign_in_goes_to_the_inbox(client: Client, rita: Any) -> None:
    client.force_login(rita)
    answer = client.get("/sign-in/?next=/sign-in/")
    assert (answer.status_code, answer["Location"]) == (302, "/")
