"""Every page against axe's rules, light and dark, wide and narrow; with screenshots for whoever wants to look."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.pages import PAGES, Visit, addresses
from tests.browser.screen import look


@pytest.mark.parametrize("visit", PAGES, ids=lambda visit: visit.name)
def test_no_rule_is_broken(browse, site, visit: Visit):
    page: Page = browse(visit.person, tolerated=visit.tolerated)
    page.goto(addresses(site)[visit.name])
    look(page, visit.name)
