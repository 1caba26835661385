"""The operator's page says what the code says."""

from __future__ import annotations

from pathlib import Path

from schemas.reasons import REASON_INFO, Reason

PAGE = Path(__file__).parents[2] / "docs" / "operator.md"


def test_the_page_lists_every_reason() -> None:
    """In order of precedence, with the meaning, who fixes it and whether unchanged can help."""
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    expected = []
    for reason in Reason:
        info = REASON_INFO[reason]
        helps = "yes" if info.unchanged_can_help else "no"
        expected.append(f"| `{reason}` | {info.meaning} | {info.fixed_by} | {helps} |")
    assert rows == expected
