"""A real browser on the real product.

Playwright runs an event loop in this thread, in which Django refuses its ORM: the product is a process of its
own, tests here ask it by HTTP and by `manage.py`, and the browser ends with this folder's last test, so that the
next test of another folder finds the thread as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, StorageState, expect, sync_playwright

from tests import services
from tests.browser import product, screen

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves the machine
)
PATIENCE = 30_000  # milliseconds: two browsers and two sites may share two busy cores
LOG_SHOWN = 10_000  # characters

Browse = Callable[..., Page]
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the product said meanwhile."""
    report = yield
    site = getattr(item, "funcargs", {}).get("site")
    if report.failed and site:
        item.stash[FAILED] = True
        report.sections.append(("log of the site", site.log.read_text()[-LOG_SHOWN:]))
    return report


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[product.Site]:
    """The product, up and ready: one for each test process."""
    beside = os.environ.get("PYTEST_XDIST_WORKER", "")
    with product.running(tmp_path_factory.mktemp("site"), beside=beside) as running:
        yield running


@pytest.fixture(scope="session")
def sessions() -> dict[str, StorageState]:
    """Who has signed in already, and with which cookies: a form is filled once for each person."""
    return {}


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = services.chromium()
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program.path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def browse(
    request: pytest.FixtureRequest,
    browser: Browser,
    site: product.Site,
    sessions: dict[str, StorageState],
) -> Iterator[Browse]:
    """Opens a page on a machine of its own: `browse("vera", size=PHONE, scheme="dark", javascript=False)`.

    `tolerated` are patterns of what the browser's console may say here. Anything else that it complains of, or a
    request to another host, fails the test.
    """
    opened: list[Page] = []
    watches: list[screen.Watch] = []

    def watched(tolerated: tuple[str, ...], **options: Any) -> BrowserContext:
        context = browser.new_context(
            base_url=site.address, locale="en-GB", reduced_motion="reduce", **options
        )
        context.set_default_timeout(PATIENCE)
        watches.append(screen.Watch(site.host, tolerated))
        watches[-1].over(context)
        return context

    def session(name: str) -> StorageState:
        if name not in sessions:
            context = watched(())
            screen.sign_in(context.new_page(), site, name)
            sessions[name] = context.storage_state()
            context.close()
        return sessions[name]

    def browse(
        name: str = "",
        *,
        size: tuple[int, int] = screen.LAPTOP,
        scheme: screen.Scheme = "light",
        javascript: bool = True,
        tolerated: tuple[str, ...] = (),
    ) -> Page:
        context = watched(
            tolerated,
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            java_script_enabled=javascript,
            is_mobile=size == screen.PHONE,
            has_touch=size == screen.PHONE,
            storage_state=session(name) if name else None,
        )
        opened.append(context.new_page())
        return opened[-1]

    yield browse
    for number, page in enumerate(opened):
        if request.node.stash.get(FAILED, False):
            screen.keep(page, f"{request.node.name}-{number}")
        with suppress(Error):
            page.goto(
                "about:blank"
            )  # a context that is closed while a page of it still loads may never close
        page.context.close()
    noted = [what for watch in watches for what in watch.noted]
    assert not noted, "\n".join(["the browser complained:", *noted])


@pytest.fixture
def page(browse: Browse) -> Page:
    """A page of somebody who has not signed in."""
    return browse()
