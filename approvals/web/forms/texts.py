"""Single values and the texts that people type for them, both ways."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from approvals.web.forms.shapes import Shape

NUMBER_CHARACTERS = 400
# What a page cannot carry, or browsers change on its way back.
_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?) ?(Z|[+-]\d\d:?\d\d)?")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SPOKEN = re.compile(
    r"(?:(\d+) ?d(?:ays?)?)? ?(?:(\d+) ?h(?:ours?)?)? ?(?:(\d+) ?m(?:in(?:utes?)?)?)? ?"
    r"(?:(\d+(?:\.\d+)?) ?s(?:ec(?:onds?)?)?)?"
)
_ANY_ISO = re.compile(
    r"[+-]?P(?=.)(?:\d+Y)?(?:\d+M)?(?:\d+W)?(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?"
)
_CLOCKED = re.compile(r"(?:-?\d+ ?d(?:ays?)?,? ?)?\d+:\d\d(?::\d\d(?:\.\d+)?)?")


class Wrong(ValueError):
    """What was typed is no such value; the message says what was found and what is needed."""


def written(shape: Shape, value: Any) -> tuple[str, str] | None:
    """Text (and zone) that read back as this JSON value; None where the field cannot say it."""
    text, zone = _texts(shape, value)
    if _UNSHOWN.search(text):
        return None
    try:
        again = read(shape, text, zone)
    except Wrong:
        return None
    if shape.kind == "decimal":
        return (text, zone) if Decimal(again) == Decimal(str(value)) else None
    return (text, zone) if _same(again, value) else None


def _texts(shape: Shape, value: Any) -> tuple[str, str]:
    kind = shape.kind
    if kind == "choice":
        return next((posted for posted, one in options(shape.spec) if _same(one, value)), told(value)), ""
    if kind == "json":
        return told(value), ""
    if kind == "moment" and isinstance(value, str) and (found := _MOMENT.fullmatch(value)):
        return f"{found[1]}T{found[2]}", "UTC" if found[3] == "Z" else found[3] or ""
    if kind == "duration" and isinstance(value, str):
        return spoken(value), ""
    if isinstance(value, str):
        return value, ""
    return json.dumps(value), ""


def told(value: Any) -> str:
    """A value as JSON, laid out to be read and edited."""
    flat = json.dumps(value, ensure_ascii=False)
    if _UNSHOWN.search(flat):  # DEL and lone halves of pairs, which JSON lets stand for themselves
        return json.dumps(value)
    return flat if len(flat) <= 60 else json.dumps(value, ensure_ascii=False, indent=2)


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def read(shape: Shape, text: str, zone: str = "") -> Any:
    """The JSON value that this text stands for; it is not empty. Raises Wrong."""
    match shape.kind:
        case "text":
            return lines(text)
        case "integer":
            return _integer(text)
        case "number":
            return _number(text)
        case "decimal":
            return _decimal(text)
        case "moment":
            return _moment(text, zone, has_zone=shape.spec.get("zone") != "none")
        case "duration":
            return _duration(text)
        case "line":
            return _line(text, shape.spec.get("format", ""))
        case "choice":
            return _chosen(shape, text)
        case "secret":
            return _secret(shape, text)
    return parsed(text)


def lines(text: str) -> str:
    """Browsers send every line break as two characters; one is meant."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def options(spec: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What may be chosen: the posted text and the value. Only texts stand for themselves."""
    values = [spec["const"]] if "const" in spec else list(spec.get("enum", ()))
    plain = all(isinstance(value, str) for value in values)
    return [(value if plain else json.dumps(value, ensure_ascii=False), value) for value in values]


def _chosen(shape: Shape, text: str) -> Any:
    for posted, value in options(shape.spec):
        if text == posted or text == json.dumps(value, ensure_ascii=False):
            return value
    raise Wrong(f"{_quoted(text)} is none of the choices.")


def _quoted(text: str) -> str:
    return f"“{text[:60]}{'…' if len(text) > 60 else ''}”"


def _integer(text: str) -> int:
    digits = text.strip().replace("−", "-")
    if len(digits) > NUMBER_CHARACTERS:
        raise Wrong(f"This has {len(digits)} characters; a number may have {NUMBER_CHARACTERS}.")
    if not re.fullmatch(r"[+-]?[0-9]+", digits):
        raise Wrong(f"{_quoted(text)} is not a whole number, such as 42.")
    return int(digits)


def _number(text: str) -> int | float:
    digits = text.strip().replace("−", "-")
    if re.fullmatch(r"-?[0-9]{1,15}", digits):
        return int(digits) if digits != "-0" else -0.0
    if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", digits):
        raise Wrong(f"{_quoted(text)} is not a number, such as 2.5.")
    number = float(digits)
    if not math.isfinite(number):
        raise Wrong(f"{_quoted(text)} is too large.")
    return number


def _decimal(text: str) -> str:
    digits = text.strip().replace("−", "-")
    try:
        good = len(digits) <= NUMBER_CHARACTERS and "_" not in digits and Decimal(digits).is_finite()
    except InvalidOperation:
        good = False
    if not good:
        raise Wrong(f"{_quoted(text)} is not a decimal number, such as 12.50.")
    return digits


def _moment(text: str, zone: str, *, has_zone: bool) -> str:
    found = _MOMENT.fullmatch(text.strip())
    try:
        local = datetime.fromisoformat(f"{found[1]}T{found[2]}") if found else None
    except ValueError:
        local = None
    if found is None or local is None:
        raise Wrong(f"{_quoted(text)} is not a date and time, such as 2026-11-29 18:30.")
    at = f"{found[1]}T{found[2]}"
    if not has_zone:
        return at
    return f"{at}{_offset(local, found[3] or zone.strip())}"


def _offset(local: datetime, zone: str) -> str:
    """`Z` or `+02:00`, of a zone by name too. Raises Wrong, also where the clocks of that zone were put back."""
    if zone.upper() in ("Z", "UTC", "GMT"):
        return "Z"
    if found := _OFFSET.fullmatch(zone):
        if int(found[2]) > 23 or int(found[3]) > 59:
            raise Wrong(f"{_quoted(zone)} is further from UTC than clocks go.")
        return f"{found[1]}{found[2]}:{found[3]}"
    if not zone:
        raise Wrong(
            "Its time zone is needed: UTC, an offset such as +02:00, or a name such as Europe/Berlin."
        )
    try:
        area = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        told = "is no time zone known here; write UTC, an offset such as +02:00, or a name such as Europe/Berlin."
        raise Wrong(f"{_quoted(zone)} {told}") from None
    early, late = (_minutes(local.replace(tzinfo=area, fold=fold)) for fold in (0, 1))
    if early != late:
        told = "is skipped" if early < late else "comes twice"
        raise Wrong(
            f"That hour {told} in {zone}, where clocks change then; write the offset, such as +02:00."
        )
    return f"{'-' if early < 0 else '+'}{abs(early) // 60:02}:{abs(early) % 60:02}"


def _minutes(at: datetime) -> int:
    """From UTC; the odd seconds of times before there were zones are left out."""
    return round((at.utcoffset() or timedelta(0)).total_seconds() / 60)


def spoken(iso: str) -> str:
    """`PT1H30M` as `1h 30m`; what says it no better stays as it is."""
    found = _ISO.fullmatch(iso)
    parts = (
        [f"{part}{unit}" for part, unit in zip(found.groups(), "dhms", strict=True) if part] if found else []
    )
    return " ".join(parts) or iso


def _duration(text: str) -> str:
    said = text.strip()
    if found := _SPOKEN.fullmatch(said.lower()) if said else None:
        days, *rest = found.groups()
        clock = "".join(f"{part}{unit}" for part, unit in zip(rest, "HMS", strict=True) if part)
        return f"P{days + 'D' if days else ''}{'T' + clock if clock else ''}"
    if _ANY_ISO.fullmatch(said) or _CLOCKED.fullmatch(said):
        return said
    raise Wrong(f"{_quoted(text)} is not a duration, such as 90s, 1h 30m, 2d or 01:30:00.")


def _line(text: str, form: str) -> str:
    said = text.strip()
    try:
        match form:
            case "date":
                needed = "a date, such as 2026-11-29"
                date.fromisoformat(said)
            case "time":
                needed = "a time of day, such as 18:30"
                time.fromisoformat(said)
            case "uuid":
                needed = "a UUID, such as 01939b1e-7c1d-7000-8000-0123456789ab"
                UUID(said)
    except ValueError:
        raise Wrong(f"{_quoted(text)} is not {needed}.") from None
    return said


def _secret(shape: Shape, text: str) -> Any:
    if (kind := shape.spec.get("type", "string")) == "string":
        return text
    try:
        return _integer(text) if kind == "integer" else _number(text) if kind == "number" else parsed(text)
    except Wrong:
        raise Wrong(f"This is not what is needed here: {kind}.") from None  # a secret is never quoted


def parsed(text: str) -> Any:
    """JSON of any kind. Raises Wrong: not JSON, a key that stands twice, NaN, too deep."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except Wrong:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        hint = ' Texts stand in double quotes: "so".' if text.strip()[:1] not in ("{", "[", '"') else ""
        raise Wrong(f"This is not JSON: {error.msg} at {place}.{hint}") from None
    except (ValueError, RecursionError):
        raise Wrong("This JSON is nested too deeply, or holds a number that is too long.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Wrong(f"The key {_quoted(key)} stands twice.")
        found[key] = value
    return found


def _no_constant(word: str) -> Any:
    raise Wrong(f"JSON has no {word}.")
