"""Signing in and out, by the form."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import look, sign_in


def test_whoever_is_not_signed_in_is_sent_to_the_form_and_comes_back(page, site):
    page.goto("/runs/")
    expect(page).to_have_url(f"{site.address}/sign-in/?next=/runs/")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill(site.passwords()["vera"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site.address}/runs/")


def test_a_wrong_password_is_told_and_the_name_is_kept(browse):
    page = browse(tolerated=("status of 422",))
    page.goto("/sign-in/")
    look(page, "sign-in")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("guessed")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct")
    expect(page.get_by_label("Name")).to_have_value("vera")
    look(page, "sign-in-refused")


def test_signing_out_ends_the_session(browse, site):
    page = browse(tolerated=("status of 401",))  # a part that the page asks for meanwhile
    sign_in(page, site, "sam")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.goto("/")
    expect(page).to_have_url(f"{site.address}/sign-in/?next=/")
