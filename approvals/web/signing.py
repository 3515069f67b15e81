"""Signing in and out."""

from __future__ import annotations

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse

UNPROCESSABLE = 422


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
        """Where `next` leads; to this page itself it leads nowhere, which Django would answer with a fault."""
        found = super().get_redirect_url(request)
        return "" if found == (request or self.request).path else found

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """The form again; the name stays."""
        return self.render_to_response(self.get_context_data(form=form), status=UNPROCESSABLE)


class SignOut(LogoutView):
    """By POST only."""

    next_page = "sign-in"
