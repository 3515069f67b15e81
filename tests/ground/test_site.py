"""What the site answers beside its pages."""

from __future__ import annotations

import pytest


def test_healthz_asks_nothing_of_the_database(client):
    assert client.get("/healthz").content == b"ok\n"
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_the_admin_needs_no_exception_from_the_content_policy(admin_client):
    answer = admin_client.get("/admin/auth/user/")
    assert answer.status_code == 200
    nonce = str(answer.context["csp_nonce"])
    assert f"style-src 'self' 'nonce-{nonce}'" in answer["Content-Security-Policy"]
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert answer.content.count(b"<style") == answer.content.count(f'<style nonce="{nonce}"'.encode())


def test_browsers_find_an_icon_where_they_look_for_one(client):
    assert client.get("/favicon.ico", follow=True)["Content-Type"] == "image/svg+xml"


def test_static_files_come_in_one_piece(client):
    answer = client.get("/static/admin/css/base.css")
    assert not answer.streaming
    assert answer["Content-Type"].startswith("text/css")
    again = client.get("/static/admin/css/base.css", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content, again.get("Content-Type")) == (304, b"", None)


@pytest.mark.django_db
def test_the_root_is_the_inbox(client, admin_client):
    answer = client.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/sign-in/?next=/")
    assert admin_client.get("/").status_code == 200
    assert admin_client.post("/").status_code == 405


@pytest.mark.django_db
def test_the_admin_leads_back_to_the_inbox(admin_client):
    assert '<a href="/">View site</a>' in admin_client.get("/admin/").content.decode()
