"""Giving each need people of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def assign(wants: Sequence[Collection[str]]) -> list[str | None]:
    """A different one of its candidates for each want; None where nobody is left.

    A maximum matching by augmenting paths. Earlier wants come first: a want goes without only if it and all
    earlier ones that are met cannot be met together, so who is met depends on the candidates alone.
    """
    candidates = [sorted(want) for want in wants]
    serves: dict[str, int] = {}

    def place(want: int, tried: set[str]) -> bool:
        for person in candidates[want]:
            if person in tried:
                continue
            tried.add(person)
            if person not in serves or place(serves[person], tried):
                serves[person] = want
                return True
        return False

    for want in range(len(candidates)):
        place(want, set())
    served = {want: person for person, want in serves.items()}
    return [served.get(want) for want in range(len(candidates))]
