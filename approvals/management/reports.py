"""Runs, approvals and cases as a person reads them, made from the same documents that `--json` prints."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from approvals.management.output import MANAGE
from approvals.management.text import block, clean, fields, shown, table, when
from approvals.management.timeline import timeline
from approvals.states import RUN_FINAL, resolutions

Json = Mapping[str, Any]


def more(found: Json) -> Iterator[str]:
    """How to see the next page."""
    if found["next"]:
        yield f"There are more: --cursor {found['next']}"


# --- runs ------------------------------------------------------------------------------------------


def table_of(found: Json, *, filtered: bool) -> Iterator[str]:
    """A page of runs."""
    if not found["items"]:
        yield "No run fits." if filtered else f"No runs yet. Start one: {MANAGE} runs start NAME --input JSON"
        return
    rows = [
        (
            r["id"],
            f"{r['workflow']} v{r['version']}",
            r["status"],
            r["requester"],
            r["created_at"][:19],
            _waits_for(r),
        )
        for r in found["items"]
    ]
    yield from table(("id", "workflow", "status", "requester", "created (UTC)", "waits for"), rows)
    yield from more(found)


def _open(run: Json) -> list[Json]:
    return [wait for wait in run["waits"] if wait["status"] == "open"]


def _waits_for(run: Json) -> str:
    return ", ".join(f"{wait['kind']} {wait['name']}" for wait in _open(run))


def brief(run: Json, now: datetime) -> Iterator[str]:
    """A run in a few lines."""
    yield from _head(run, now)
    if run["status"] not in RUN_FINAL:
        yield f"Next: {MANAGE} runs show {run['id']}"


def _head(run: Json, now: datetime, *values: tuple[str, str]) -> Iterator[str]:
    yield f"Run {run['id']}, {run['workflow']} v{run['version']}: {run['status']}"
    error = run["error"] or {}
    yield from fields(
        [
            ("key", run["key"]),
            ("requester", run["requester"]),
            ("created", when(run["created_at"], now)),
            ("finished", when(run["finished_at"], now)),
            ("cancel asked", when(run["cancel_requested_at"], now)),
            ("pause asked", when(run["pause_requested_at"], now)),
            ("undoing", {"asked": "to begin", "begun": "begun"}.get(run["unwinding"] or "", "")),
            ("progress", shown(run["progress"]) if run["progress"] else ""),
            ("waits for", _waits_for(run)),
            ("error", f"{error['type']}: {error['message']}" if error else ""),
            *values,
        ]
    )


def whole(run: Json, now: datetime) -> Iterator[str]:
    """Everything about a run, and what to do next."""
    output = "" if run["output"] is None else shown(run["output"])
    yield from _head(run, now, ("input", shown(run["input"])), ("output", output))
    if waits := _open(run):
        yield "\nOpen waits"
        for wait in waits:
            yield from _wait(wait, now)
    if run["effects"]:
        yield "\nEffects"
        for effect in run["effects"]:
            yield from effect_lines(effect)
    yield "\nTimeline"
    yield from timeline(run["entries"])
    for late in run["late_messages"]:
        yield f"  too late: message {clean(late['name'])} {clean(late['id'])}"
    if run["status"] == "pending":
        yield f"\nIt waits for a worker. If none runs: {MANAGE} worker"
    if run["status"] == "paused":
        yield f"\nNext: {MANAGE} runs resume {run['id']}"


def _wait(wait: Json, now: datetime) -> Iterator[str]:
    yield f"  {wait['kind']} {clean(wait['name'])}"
    about = [("opened", when(wait["opened_at"], now)), ("until", when(wait["expires_at"], now))]
    if wait["kind"] == "reconciliation":
        about += [("reason", wait["sentence"]), ("message", (wait["case"] or {}).get("message", ""))]
        about += [("next", f"{MANAGE} reconciliation show {wait['id']}")]
    else:
        about += [("title", wait.get("title", "")), ("next", next_for(wait))]
    yield from fields(about, indent="    ")


def next_for(wait: Json) -> str:
    """The command line that closes this wait, or why there is none."""
    name = shlex.quote(wait["name"])
    match wait["kind"]:
        case "approval":
            revision = f" --revision {wait['revision']}" if wait["revision"] > 1 else ""
            outcome = f"--outcome approved --digest {wait['digest']}{revision}"
            return f"{MANAGE} approvals decide {wait['id']} --as USER {outcome}"
        case "reconciliation":
            choices = "|".join(resolutions(wait["name"]))
            return (
                f"{MANAGE} reconciliation resolve {wait['id']} --as USER --resolution {choices} --note NOTE"
            )
        case "signal":
            return f"{MANAGE} runs signal {wait['run_id']} {name} --payload JSON"
        case "timer":
            return "nothing to do: time closes it"
        case "child":
            return "nothing to do: the end of its child closes it"
    return "nothing to do here: its message closes it"


def effect_lines(effect: Json) -> Iterator[str]:
    """An effect and its receipt."""
    yield f"  {clean(effect['name'])} ({clean(effect['kind'])}): {effect['status']}"
    receipt = effect["receipt"] or {}
    yield from fields(
        [
            ("undoes", f"position {effect['compensates']}" if effect["compensates"] else ""),
            ("key", effect["key"]),
            ("attempts", effect["attempts"]),
            ("reason", effect["reason"]),
            ("receipt", receipt.get("external_id")),
            ("checksum", receipt.get("checksum")),
            ("evidence", shown(receipt["evidence"]) if receipt.get("evidence") else ""),
        ],
        indent="    ",
    )


def replayed(report: Json) -> Iterator[str]:
    """What a replay came to."""
    same = (
        "today's code does what the journal says"
        if report["same"]
        else "today's code DIFFERS from the journal"
    )
    yield f"Run {report['run_id']}: {same} ({report['positions']} positions, {report['ended']})"
    yield from fields((k, v if isinstance(v, str) else shown(v)) for k, v in report["difference"].items())
    yield from (f"  warning  {clean(warning)}" for warning in report["warnings"])


# --- approvals -------------------------------------------------------------------------------------


def approvals(found: Json, now: datetime, *, everything: bool) -> Iterator[str]:
    """A page of approvals."""
    if not found["items"]:
        yield (
            "No approval was ever asked for."
            if everything
            else (f"Nothing waits for a decision. What was decided: {MANAGE} approvals list --all")
        )
        return
    rows = [
        (a["id"], a["title"], a["outcome"] or a["status"], _quorum(a), _policy(a), when(a["expires_at"], now))
        for a in found["items"]
    ]
    yield from table(("id", "title", "status", "quorum", "policy", "until"), rows)
    yield from more(found)
    if waiting := [a for a in found["items"] if a["status"] == "open"]:
        yield f"\nLook at one before you decide ({MANAGE} approvals show ID); then, as one of its reviewers:"
    for each in waiting:
        yield f"  {clean(each['title'])}"
        yield f"    {next_for(each)}"


def _quorum(approval: Json) -> str:
    return f"{approval['quorum']['got']} of {approval['quorum']['needed']}"


def _stages(approval: Json) -> Iterator[tuple[str, str]]:
    """Who is asked, and how far each stage is."""
    for stage in approval["stages"]:
        needs = (f"{n['got']} of {n['needed']} from {' or '.join(n['from'])}" for n in stage["needs"])
        state = " (open now)" if stage["name"] == approval["stage"] and len(approval["stages"]) > 1 else ""
        yield f"stage {stage['name']}", f"{' and '.join(needs)}{state}"
    if approval["reject_after"] > 1:
        yield "rejected by", f"{approval['reject_after']} people"
    if approval["comment_required"]:
        outcomes = ", ".join(outcome.replace("_", " ") for outcome in approval["comment_required"])
        yield "needs a comment", outcomes


def _policy(approval: Json) -> str:
    return f"{approval['policy']['slug']} v{approval['policy']['version']}"


def approval(found: Json, now: datetime) -> Iterator[str]:
    """All that a reviewer needs to decide: the action first, in full."""
    yield clean(found["title"])
    yield from block(found["sentence"])
    if found["summary"]:
        yield ""
        yield from block(found["summary"])
    yield f"\nWhat {'would be done' if found['kind_of_effect'] else 'is asked about'}, exactly"
    yield from fields(
        [("kind", found["kind_of_effect"]), ("target", found["target"]), ("risk", found["risk"])]
    )
    yield from block(json.dumps(found["action"], ensure_ascii=False, indent=2))
    if found["evidence"]:
        yield "\nEvidence"
        for each in found["evidence"]:
            yield from _evidence(each)
    yield "\nDecision"
    yield from fields(
        [
            ("id", found["id"]),
            ("run", found["run_id"]),
            ("status", found["outcome"] or found["status"]),
            ("void", found["invalidated"]),
            ("asked", when(found["opened_at"], now)),
            ("until", when(found["expires_at"], now)),
            ("policy", _policy(found)),
            ("quorum", _quorum(found)),
            *_stages(found),
            ("digest", found["digest"]),
            ("revision", found["revision"]),
        ]
    )
    yield from (_decision(each, now) for each in found["decisions"])
    if found["status"] == "open":
        yield f"\nNext: {next_for(found)}"


def _decision(each: Json, now: datetime) -> str:
    counted = "" if each["counted"] else ", does not count"
    comment = f": {clean(each['comment'])}" if each["comment"] else ""
    return f"  {clean(each['reviewer'])} {each['outcome']}{counted}, {when(each['at'], now)}{comment}"


def _evidence(each: Json) -> Iterator[str]:
    match each.get("type"):
        case "check":
            mark = {True: "passed", False: "FAILED"}.get(each["passed"], "not tested")
            yield f"  {mark:<10}  {clean(each['label'])}  {clean(each['detail'])}".rstrip()
            return
        case "diff":
            yield f"  {clean(each['title'])}"
            yield from block(shown(each["before"]), indent="    - ")
            yield from block(shown(each["after"]), indent="    + ")
            return
    rest = {k: v for k, v in each.items() if k not in ("type", "title")}
    yield f"  {clean(each.get('title', each.get('type', '')))}"
    for value in rest.values():
        yield from block(value if isinstance(value, str) else shown(value), indent="    ")


# --- reconciliations -------------------------------------------------------------------------------


def cases(found: Json, now: datetime, *, everything: bool) -> Iterator[str]:
    """A page of reconciliations."""
    if not found["items"]:
        yield "No case was ever opened." if everything else "No run waits for an operator."
        return
    rows = [
        (c["id"], c["sentence"], c["outcome"] or c["status"], c["run_id"], when(c["opened_at"], now))
        for c in found["items"]
    ]
    yield from table(("id", "what happened", "status", "run", "opened"), rows)
    yield from more(found)
    if not everything:
        yield f"Look at one before you settle it: {MANAGE} reconciliation show ID"


def case(found: Json, now: datetime) -> Iterator[str]:
    """A case: what is known, the effect it is about, and how it can be settled."""
    yield f"Case {found['id']}: {found['name']} ({found['outcome'] or found['status']})"
    yield f"  {clean(found['sentence'])}"
    about = [("run", found["run_id"]), ("opened", when(found["opened_at"], now))]
    about += [(clean(k), v if isinstance(v, str) else shown(v)) for k, v in (found["case"] or {}).items()]
    yield from fields(about)
    if found["effect"]:
        yield "\nEffect"
        yield from effect_lines(found["effect"])
    if found["status"] != "open":
        return
    yield f"\nNext: {next_for(found)}"
    if found["effect"]:
        yield f"To have a worker look it up first: {MANAGE} reconciliation look {found['id']} --as USER"
