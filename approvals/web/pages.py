"""What every page has in common: who looks, what of it is asked for, and how refusals are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, Literal
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render as render_template
from django.template import loader
from django.urls import reverse

from approvals import clock
from approvals.errors import NotFound, PermissionRefused
from approvals.queries import access

type Tab = Literal["inbox", "runs", "workflows", "reconciliations", ""]

KEYS_COOKIE, OFF = "single_keys", "off"
"""Kept by the browser, not the session: who needs it off needs it off after the next sign-in too."""

SOON = timedelta(hours=1)
"""What is due within this is marked."""


class Request(HttpRequest):
    """A request to a page: somebody is signed in."""

    viewer: access.Viewer


def page[**P](
    *methods: str,
) -> Callable[
    [Callable[Concatenate[Request, P], HttpResponse]], Callable[Concatenate[HttpRequest, P], HttpResponse]
]:
    """A view for signed-in people and these methods (HEAD comes with GET, and changes nothing).

    Others are sent to sign in, and come back; a part of a page is answered 401 instead. What is not theirs to
    see is not there: 404.
    """

    def decorate(
        view: Callable[Concatenate[Request, P], HttpResponse],
    ) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
        @wraps(view)
        def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
            if request.method not in allowed:
                return not_allowed(request, allowed)
            if not request.user.is_authenticated:
                if "part" in request.GET:
                    return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
                return redirect_to_login(request.get_full_path() if "GET" in methods else reverse("inbox"))
            request.viewer = access.viewer(request.user)  # type: ignore[attr-defined]
            try:
                return view(request, *args, **kwargs)  # type: ignore[arg-type]
            except NotFound as error:
                raise Http404(str(error)) from error
            except PermissionRefused as error:
                return refused(request, error)  # type: ignore[arg-type]

        return answer

    return decorate


def not_allowed(request: HttpRequest, allowed: Sequence[str]) -> HttpResponse:
    """A page that says by which methods its address answers."""
    context = {"allowed": " and ".join(allowed), "is_page": "GET" in allowed}
    told = loader.render_to_string("405.html", context, request)
    return HttpResponseNotAllowed(allowed, told)


def see_other(view: str, *args: Any) -> HttpResponse:
    """Leads a browser that posted to a page that it may load as often as it likes."""
    return HttpResponse(status=HTTPStatus.SEE_OTHER, headers={"Location": reverse(view, args=args)})


def identifier(text: str) -> UUID:
    """An id out of a query string. Raises NotFound for what is none."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("This is no identifier", found=text[:40]) from None


def refused(request: Request, error: PermissionRefused) -> HttpResponse:
    """A page that says what may not be done, and who may."""
    return render(request, "403.html", {"told": str(error)}, status=HTTPStatus.FORBIDDEN)


def render(
    request: Request, template: str, context: Mapping[str, Any], *, tab: Tab = "", status: int = 200
) -> HttpResponse:
    """The whole page, or of a page that was asked for `?part=NAME` only that partial of its template.

    Adds what every template may use: `now` and `version` (database time, the latter in microseconds, read
    before anything that the template itself reads), `soon`, `viewer`, `counts`, `tab` and `keys_off`. Views that
    read rows before should bring a `now` of their own, read before these. Raises Http404 for a part that there is
    not.
    """
    now = context.get("now") or clock.now()
    part = request.GET.get("part", "") if request.method in ("GET", "HEAD") else ""
    shown: dict[str, Any] = {
        "now": now,
        "version": int(now.timestamp() * 1_000_000),
        "soon": now + SOON,
        "viewer": request.viewer,
        "tab": tab,
        "keys_off": request.COOKIES.get(KEYS_COOKIE) == OFF,
        **context,
    }
    if part == "rail":
        template = "base.html"
    if part in ("", "rail"):
        shown["counts"] = access.counts(request.viewer, mine=shown.get("mine"))
    if part:
        parts: tuple[str, ...] = shown.get("parts", ())
        if part not in (*parts, "rail"):
            raise Http404("This page has no such part")
        template = f"{template}#{part}"
    response = render_template(request, template, shown, status=status)
    response["Cache-Control"] = "no-store"
    return response
