"""Signing in and out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve

from approvals.web.pages import not_allowed


class SignInForm(AuthenticationForm):
    """Name and password. A disabled account is answered as a wrong password is: strangers learn of none."""

    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "Name or password is not correct. Both tell capital letters from small ones.",
    }


class SignIn(LoginView):
    """Leads on to `next`, if that is an address of this site. Whoever is signed in already goes on at once."""

    form_class = SignInForm
    template_name = "approvals/web/sign_in.html"
    redirect_authenticated_user = True

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        """Where `next` leads; to a door in or out it leads nowhere: it would be a loop, or no page."""
        found = super().get_redirect_url(request)
        with suppress(Resolver404):
            return "" if _is_door(resolve(urlsplit(found).path).func) else found
        return found

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """The form again; the name stays."""
        return self.render_to_response(
            self.get_context_data(form=form), status=HTTPStatus.UNPROCESSABLE_ENTITY
        )


class SignOut(LogoutView):
    """By POST only."""

    next_page = "sign-in"

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """With a page: somebody may have typed the address."""
        return not_allowed(request, ["POST"])


def _is_door(view: Callable[..., Any]) -> bool:
    return getattr(view, "view_class", None) in (SignIn, SignOut)
