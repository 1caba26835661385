"""Cutting the lost verdicts of a partition into pages. Pure.

A batch was decided under one set and had at most `PAGE_RECORDS` records. A page is cut only where
no batch can have gone on, so there are never more pages than there were batches, whose numbers
they take.
"""

from __future__ import annotations

PAGE_RECORDS = 50_000
"""As many as a batch can have (`batch_records`)."""


class PageCutter:
    """Takes the decision sets of records in order; None for a record whose set nothing tells."""

    def __init__(self, records_max: int = PAGE_RECORDS) -> None:
        self._records_max = records_max
        self._pages: list[tuple[int, bytes | None]] = []

    def add(self, decision_set: bytes | None) -> None:
        """Another record: on the last page if it fits there, else on a new one."""
        if self._pages:
            records, known = self._pages[-1]
            same = decision_set is None or known is None or known == decision_set
            if same and records < self._records_max:
                self._pages[-1] = records + 1, known or decision_set
                return
        self._pages.append((1, decision_set))

    def pages(self, before: bytes) -> list[tuple[int, bytes]]:
        """Records and decision set of each page; one empty page for no record at all.

        A page on which no record tells its set gets that of the page before it; `before` is the
        set of what was decided before all of them.
        """
        found: list[tuple[int, bytes]] = []
        for records, known in self._pages or [(0, None)]:
            before = known or before
            found.append((records, before))
        return found
