"""The listings, as their authors wrote them: they type-check strictly, and those that need nothing unbuilt run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from approvals import Receipt, StoredFile
from approvals.services import runs
from approvals.testing import (
    assert_invariants,
    clock,
    crash_at,
    decide,
    drive,
    load_policies,
    peer,
    pending,
    people,
)
from approvals.workflows import registry
from durable_app.environment import BASE_DIR

LISTINGS = Path(__file__).parent / "listings"
HTTPX = """
class HTTPError(Exception): ...
class ConnectError(HTTPError): ...
class Response:
    status_code: int
    text: str
    def json(self) -> dict[str, str]: ...
    def raise_for_status(self) -> Response: ...
def post(url: str, *, json: object, headers: dict[str, str], timeout: float) -> Response: ...
"""


def test_every_listing_type_checks_strictly(tmp_path: Path) -> None:
    """As `listings/README.md` says; httpx, which one listing uses, is no dependency of ours."""
    shutil.copytree(LISTINGS, tmp_path / "listings")
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / "httpx.pyi").write_text(HTTPX)
    files = sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "listings").glob("*.py"))
    assert len(files) == 11
    told = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--disable-error-code", "empty-body", "--follow-imports=silent",
            f"--config-file={BASE_DIR / 'pyproject.toml'}",
            f"--cache-dir={BASE_DIR / '.mypy_cache' / 'listings'}", *files,
        ],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": f"{BASE_DIR}:listings:stubs"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout


class Psp(types.ModuleType):
    """The payment provider's client, which the listings' authors have."""

    class Declined(Exception):
        pass


@contextmanager
def listing(name: str, **clients: types.ModuleType) -> Iterator[Any]:
    """One listing, imported as the only module with workflows."""
    sys.modules.update(clients)
    with (
        mock.patch.dict(registry._workflows, clear=True),
        mock.patch.object(sys, "path", [str(LISTINGS), *sys.path]),
    ):
        try:
            yield importlib.import_module(name)
        finally:
            for path in LISTINGS.glob("*.py*"):
                sys.modules.pop(path.stem, None)


@pytest.fixture
def load(engine: Any) -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:

        def enter(name: str, **clients: types.ModuleType) -> Any:
            module = stack.enter_context(listing(name, **clients))
            load_policies()
            return module

        yield enter
        assert_invariants()


@pytest.mark.parametrize(
    "name", ["test_large_refund_needs_two", "test_small_refund_is_automatic", "test_expiry"]
)
def test_the_refunds_own_tests_pass(load: Callable[..., Any], name: str) -> None:
    load("refund", psp=Psp("psp"))
    spec = importlib.util.spec_from_file_location("authors_tests", LISTINGS / "test_listings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, name)()


def test_a_declined_refund_fails_the_run_as_refused(load: Callable[..., Any]) -> None:
    psp: Any = Psp("psp")

    def refund(charge: str, amount: int, key: str) -> str:
        raise Psp.Declined("no such charge")

    psp.refund = refund
    module = load("refund", psp=psp)
    run = runs.start(module.refund, module.Refund(charge="c", amount_minor=100, currency="EUR"))
    drive()
    found = runs.get(run.id)
    assert found.status == "failed" and found.error is not None
    assert found.error["type"] == "EffectRefused" and "no such charge" in found.error["message"]


def test_the_letter(load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("letter")
    draft = module.Letter(to="ann@example.org", subject="Hello", body="…")
    monkeypatch.setattr(module, "write", lambda topic: draft.model_copy(update={"subject": topic}))
    module.write.__annotations__["return"] = module.Letter
    who = people()
    with peer(module.SendLetter) as post:
        run = runs.start(module.letter, "Spring", requester=who.requester)
        drive()
        (wait,) = pending(run)
        assert wait.title == "Letter to ann@example.org" and post.requests == []
        decide(run, who.reviewers[0], "approved")
        drive()
        assert [letter.subject for letter in post.requests] == ["Spring"]
        assert runs.get(run.id).output == f"peer:{post.keys[0]}"


def test_the_research_agent(load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from approvals import Retry, step

    module = load("agent")
    failed: list[int] = []

    async def search(query: str) -> list[str]:
        return [query, "b"]

    @step(retry=Retry(attempts=5))
    async def analyze(sources: list[str]) -> str:
        if len(failed) < 2:
            failed.append(1)
            raise ConnectionError("the model is busy")
        return "+".join(sources)

    async def synthesize(analysis: str) -> str:
        return f"report of {analysis}"

    monkeypatch.setattr(module, "search_sources", search)
    monkeypatch.setattr(module, "analyze_sources", analyze)
    monkeypatch.setattr(module, "synthesize_report", synthesize)
    run = runs.start(module.research_agent, "a")
    for _ in range(3):
        drive()
        clock.shift(timedelta(seconds=10))
    assert runs.get(run.id).output == "report of a+b"


def test_the_research_job_survives_its_worker_after_publishing(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = types.ModuleType("store")
    objects: dict[str, Any] = {}

    def put(path: str, data: bytes) -> Any:
        import hashlib

        assert path not in objects, "uploaded twice"
        objects[path] = types.SimpleNamespace(id=path, sha256=hashlib.sha256(data).hexdigest())
        return objects[path]

    store.put, store.find, store.get = put, objects.get, objects.get
    module = load("research", store=store)

    def gather(topic: str) -> Any:
        return [module.Record(id="1", text=topic)]

    def normalize(records: Any) -> StoredFile:
        return StoredFile.put("\n".join(r.text for r in records).encode(), "set.jsonl")

    def analyze(dataset_id: str) -> str:
        return f"analysis of {dataset_id[-9:]}"

    records: Any = types.GenericAlias(list, (module.Record,))
    gather.__annotations__["return"] = records
    normalize.__annotations__ = {"records": records, "return": StoredFile}
    analyze.__annotations__ = {"dataset_id": str, "return": str}
    for fn in (gather, normalize, analyze):
        monkeypatch.setattr(module, fn.__name__, fn)
    run = runs.start(module.research, "bees")
    with crash_at("performed"):
        drive()
    drive()
    assert runs.get(run.id).output == "analysis of set.jsonl" and len(objects) == 1


def test_the_trip_undoes_four_bookings_when_the_fifth_is_refused(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load("trip")
    undone: list[str] = []

    def compensate(self: Any, receipt: Any, key: str) -> Any:
        undone.append(receipt.kind)
        return Receipt(f"undone-{key}")

    monkeypatch.setattr(module.Service, "compensate", compensate)
    with ExitStack() as peers:
        for service in (module.Flight, module.Hotel, module.Car, module.Insurance):
            peers.enter_context(peer(service))
        peers.enter_context(peer(module.Visa, "refuse"))
        run = runs.start(module.trip, module.Trip(traveller="ann", start="2027-01-01", city="Oslo"))
        drive()
        assert undone == ["insurance.book", "car.book", "hotel.book", "flight.book"]
        found = runs.get(run.id)
        assert found.status == "failed" and found.error is not None and found.error["type"] == "EffectRefused"
