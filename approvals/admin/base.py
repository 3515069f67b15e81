"""What every window has: a list and a page, both read-only, both for staff who may view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from approvals import clock
from approvals.admin import show

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:
    Admin = admin.ModelAdmin
else:

    class Admin(admin.ModelAdmin):
        """Django's own knows its model's type only to type checkers."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under headers; `empty` is said where there are none."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: named facts, then blocks, then a table."""

    title: str
    facts: Sequence[tuple[str, Any]] = ()
    blocks: Sequence[Any] = ()
    table: Table | None = None
    intro: str = ""


def by(column: str, words: Iterable[str], *, title: str) -> type[admin.SimpleListFilter]:
    """A list's filter by a column whose words are known without asking the database."""
    known = [(word, word.replace("_", " ")) for word in words]

    class Filter(admin.SimpleListFilter):
        parameter_name = column

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return known

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{column: self.value()}) if self.value() else queryset

    Filter.title = title
    return Filter


class Window(Admin[M]):
    """A model's list and its pages. Nothing can be added, changed or deleted."""

    actions = None
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/approvals/change_list.html"
    page_template = "admin/approvals/page.html"
    list_defer: ClassVar[tuple[str, ...]] = ()
    """Long columns that the list does not read."""
    empty_text: ClassVar[str] = "There is nothing here yet."
    buttons: ClassVar[tuple[tuple[str, str], ...]] = ()
    """(last part of the address, method) of what a page's forms post to."""

    # --- read-only --------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        name = self.opts.model_name
        own = [
            path(
                f"<path:object_id>/{last}/",
                self.admin_site.admin_view(self._button(getattr(self, method))),
                name=f"approvals_{name}_{last}",
            )
            for last, method in self.buttons
        ]
        return own + super().get_urls()

    # --- the list ---------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        """Every row brings the database's time with it, as `asked_at`."""
        rows = super().get_queryset(request).defer(*self.list_defer)
        return cast("QuerySet[M]", rows.annotate(asked_at=clock.Now()))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        told = {"title": capfirst(str(self.opts.verbose_name_plural)), "empty_text": self.empty_text}
        return super().changelist_view(request, {**told, **(extra_context or {})})

    # --- the page ---------------------------------------------------------------------------------

    def sections(self, request: HttpRequest, row: Any) -> list[Section]:
        """What the page of one row shows."""
        raise NotImplementedError

    def forms(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What the page's template needs for its forms."""
        return {}

    def page_rows(self, request: HttpRequest) -> QuerySet[M]:
        """The rows of `get_queryset`, whole."""
        return self.get_queryset(request).defer(None)

    def found(self, request: HttpRequest, object_id: str) -> M:
        """The row of an address. Raises Http404, PermissionDenied."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            return self.page_rows(request).get(pk=unquote(object_id))
        except (ObjectDoesNotExist, ValidationError, ValueError, OverflowError) as error:
            raise Http404(f"There is no such {self.opts.verbose_name}.") from error

    def page(self, request: HttpRequest, object_id: str, *, status: int = 200, **extra: Any) -> HttpResponse:
        """The page as things are now."""
        row = self.found(request, object_id)
        context = {
            **self.admin_site.each_context(request),
            **self.forms(request, row),
            **extra,
            "title": self.title(row),
            "opts": self.opts,
            "original": row,
            "sections": self.sections(request, row),
        }
        return TemplateResponse(request, self.page_template, context, status=status)

    def title(self, row: Any) -> str:
        """The page's heading."""
        return show.bounded(str(row), 200)[0]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return self.page(request, object_id)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Nothing is changed here, so Django's record of changes would always be empty."""
        raise Http404

    def _button(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """A page's form is posted, by an operator or another whom the service lets; anything else changes nothing."""

        def guarded(request: HttpRequest, object_id: str) -> HttpResponse:
            if request.method in ("GET", "HEAD"):  # as after a log-in that came in between
                return self.page(request, object_id)
            if request.method != "POST":
                return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
            self.found(request, object_id)
            return view(request, object_id)

        return guarded


class WindowOfRuns(Window[M]):
    """A window on rows that belong to a run each: they bring it along, and are found by its id or their own."""

    ids: ClassVar[tuple[str, ...]] = ("pk", "run")
    """Columns in which a whole id is looked for."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        return super().get_queryset(request).select_related("run")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M], search_term: str
    ) -> tuple[QuerySet[M], bool]:
        if (identity := show.as_id(search_term)) is not None:
            return queryset.filter(reduce(or_, (Q((column, identity)) for column in self.ids))), False
        return super().get_search_results(request, queryset, search_term)

    @admin.display(description="status", ordering="status")
    def state(self, row: Any) -> SafeString:
        return show.badge(row.status)

    @admin.display(description="run", ordering="run")
    def of_run(self, row: Any) -> SafeString:
        return show.run_link(row.run_id, row.run.workflow)
