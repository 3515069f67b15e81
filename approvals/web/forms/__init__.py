"""Forms from JSON schemas: shown as fields, and read back into the JSON tree that fits the schema.

A page shows `fields(…)` with the template `approvals/web/_fields.html` (given it as `field`) inside a form
element of its own, multipart if `field.is_multipart`, whose FIRST button is the one that Enter should press:
rows of lists have buttons, too. On POST it first asks `changed(…)`, whether a row is to be added or
removed (then it shows the form again), else reads `tree(…)`; with problems it shows the form again, 422.
What a service finds wrong with the tree, `Filled.blame` puts beside the fields.

Names of fields begin with the prefix, which is also the name of the form itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from approvals.web.forms import reading, showing, writing
from approvals.web.forms.reading import Filled, Keep
from approvals.web.forms.shapes import ABSENT, Schema, shape, worded
from approvals.web.forms.showing import Field
from approvals.web.forms.writing import Post

__all__ = ["ABSENT", "Field", "Filled", "Keep", "Post", "changed", "fields", "posted", "tree", "worded"]


def fields(
    schema: Schema,
    values: Any = ABSENT,
    problems: Mapping[str, str] | None = None,
    prefix: str = "form",
    *,
    post: Post | None = None,
    label: str = "Input",
    focus: str = "",
    insists: bool = True,
) -> Field:
    """The form of a schema: filled with `values` (a JSON tree), or as it was posted, else with its defaults.

    `problems` by field name; `focus` names the field to go on at; `insists`: browsers may refuse to send what
    is required and empty. Secrets and files are never filled in.
    """
    top = shape(schema, schema, prefix, str(schema.get("title") or label))
    texts = writing.write(top, values) if post is None else post
    return showing.Showing(texts, problems or {}, focus).show(top, insists=insists)


def tree(
    schema: Schema,
    post: Post,
    files: Mapping[str, Any] | None = None,
    prefix: str = "form",
    *,
    keep: Keep | None = None,
) -> Filled:
    """Reads a posted form into a JSON tree with its types, or problems by field name.

    `keep` stores an uploaded file and answers its reference (a JSON tree); it is called only where nothing
    else is wrong, and may raise an ApprovalsError, which becomes that field's problem.
    """
    return reading.fill(shape(schema, schema, prefix, ""), post, files or {}, keep)


def changed(post: Post, prefix: str = "form") -> tuple[dict[str, list[str]], str] | None:
    """The form after `add=NAME` or `remove=NAME` was pressed, and the field to go on at; None if neither was."""
    return reading.changed(post, prefix)


def posted(querydict: Any) -> Post:
    """What Django received, as plain lists by name."""
    return dict(querydict.lists())
