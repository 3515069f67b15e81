"""One file per machine, one function per event, named as the event. All inside `locked(run_id)`."""

from approvals.journal import SUSPECT_TURNS, Held, NewEntry, Transaction, claim, create, locked, record

__all__ = ["SUSPECT_TURNS", "Held", "NewEntry", "Transaction", "claim", "create", "locked", "record"]
