"""What templates use: times, durations, badges, short names of ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from approvals.queries.access import MOST_COUNTED
from approvals.queries.wording import TONES, absolute, relative, short
from approvals.web import show

register = template.Library()

register.filter(absolute)
register.filter(short)


@register.simple_tag(takes_context=True)
def moment(context: template.Context, at: datetime | str | None) -> SafeString:
    """An instant as seen from now, the absolute one with its zone on hover. live.js keeps it fresh."""
    if not at:
        return SafeString("–")
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return format_html(
        '<time data-relative datetime="{}" title="{}">{}</time>',
        at.astimezone(UTC).isoformat(timespec="seconds"),
        absolute(at),
        relative(at, context["now"]),
    )


@register.filter
def clock(at: datetime) -> SafeString:
    """The time of day of an instant, all of it on hover."""
    local = localtime(at)
    iso = at.astimezone(UTC).isoformat(timespec="seconds")
    return format_html('<time datetime="{}" title="{}">{}</time>', iso, absolute(at), f"{local:%H:%M:%S}")


@register.filter
def lasted(span: timedelta | float | None) -> str:
    """How long something took: `2.4 s`, `1 m 12 s`, `3 h 5 m`, `2 d 4 h`."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.1 else "under 0.1 s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours < 1:
        return f"{minutes} m {int(seconds % 60)} s"
    return f"{hours} h {minutes % 60} m" if days < 1 else f"{days} d {hours % 24} h"


@register.filter
def counted(number: int) -> str:
    """A number as `access.count` tells it: `12`, `99+`."""
    return str(number) if number <= MOST_COUNTED else f"{MOST_COUNTED}+"


@register.filter
def thousands(number: int) -> str:
    """A large number as it is read: `20,000`."""
    return f"{number:,}"


@register.filter
def badge(word: Any, tone: str = "") -> SafeString:
    """A status as a label with its tone."""
    text = str(word)
    return format_html(
        '<span class="badge {}">{}</span>', tone or TONES.get(text, ""), text.replace("_", " ")
    )


GLANCE_CHARS = 240


@register.filter
def marked(text: Any) -> SafeString:
    """A text that others wrote, with marks for characters that could not be seen."""
    return show.marked(text)


@register.filter
def glance(text: Any) -> SafeString:
    """The beginning of a text, for one row among many."""
    found = str(text)
    return show.marked(found if len(found) <= GLANCE_CHARS else f"{found[: GLANCE_CHARS - 1]}…")
