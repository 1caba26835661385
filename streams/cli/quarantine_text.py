"""How `weighbridge quarantine` says what it found. Nothing here is a record's own text, but for
names of members and headers, which are made printable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from rich.table import Table

from connectors.postgres.rejects import Groups, Listed
from streams.cli.output import console, table
from streams.dismiss import DismissSummary
from streams.resubmit_plan import Summary


def printable(text: str) -> str:
    """Text that does nothing to a terminal."""
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _detail(detail: Sequence[Mapping[str, str]]) -> str:
    """Paths and rules."""
    said = (f"{one['path']}: {one['rule']}" if one["path"] else one["rule"] for one in detail)
    return printable("; ".join(said))


# --- ls -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """A list, for people and for scripts."""

    found: Table
    content: Mapping[str, object]
    end: str
    """What is said below the table."""
    ids: Sequence[str]

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            click.echo(json.dumps(self.content))
            return
        console().print(self.found)
        click.echo(self.end)


def grouping(groups: Groups, skip: int) -> Shown:
    """Rejects of one type, reason and content in one line."""
    found = table(
        "newest of them", "type", "reason", "records", "first seen", "last seen", "attempt", ""
    )
    for one in groups.groups:
        found.add_row(
            str(one.newest),
            one.record_type,
            str(one.reason),
            str(one.records),
            _moment(one.first_seen),
            _moment(one.last_seen),
            str(one.attempt),
            _critical(one.safety_critical),
        )
    content = {
        "records": groups.records_in_all,
        "groups": groups.groups_in_all,
        "items": [
            {
                "newest": str(one.newest),
                "record_type": one.record_type,
                "reason": str(one.reason),
                "records": one.records,
                "first_seen": one.first_seen.isoformat(),
                "last_seen": one.last_seen.isoformat(),
                "attempt": one.attempt,
                "safety_critical": one.safety_critical,
            }
            for one in groups.groups
        ],
    }
    end = f"{groups.records_in_all} rejects in {groups.groups_in_all} groups"
    end += _more(len(groups.groups), groups.groups_in_all, skip)
    return Shown(found, content, end, [str(one.newest) for one in groups.groups])


def listing(rejects: Sequence[Listed], total: int, skip: int) -> Shown:
    """One reject in each line."""
    found = table("id", "type", "reason", "detail", "quarantined", "attempt", "bytes", "state", "")
    for one in rejects:
        found.add_row(
            str(one.position),
            one.record_type,
            str(one.reason),
            _detail(json.loads(one.detail)),
            _moment(one.quarantined_at),
            str(one.attempt),
            str(one.value_bytes),
            _state(one),
            _critical(one.safety_critical),
        )
    content = {
        "records": total,
        "items": [
            {
                "quarantine_id": str(one.position),
                "record_type": one.record_type,
                "reason": str(one.reason),
                "detail": json.loads(one.detail),
                "quarantined_at": one.quarantined_at.isoformat(),
                "attempt": one.attempt,
                "bytes": one.value_bytes,
                "state": _state(one),
                "safety_critical": one.safety_critical,
            }
            for one in rejects
        ],
    }
    end = f"{total} rejects" + _more(len(rejects), total, skip)
    return Shown(found, content, end, [str(one.position) for one in rejects])


def _state(one: Listed) -> str:
    if one.resubmitted:
        return "resubmitted"
    return "dismissed" if one.dismissed else "open"


def _critical(critical: bool) -> str:  # noqa: FBT001 - one value, turned into a word
    return "SAFETY" if critical else ""


def _more(shown: int, total: int, skip: int) -> str:
    left = total - skip - shown
    return f"; {left} more with --skip {skip + shown}" if left > 0 else ""


# --- show -----------------------------------------------------------------------------------------


def show_one(reject: Mapping[str, Any]) -> None:
    """What `Shown.as_dict` holds, in lines."""
    out = console()
    lines = table("", "")
    lines.show_header = False
    for name, value in _facts(reject):
        lines.add_row(name, printable(value))
    out.print(lines)
    if reject["record"] is None:
        click.echo("the bytes cannot be decoded")
    else:
        click.echo(json.dumps(reject["record"], indent=2))
    for one in reject["resubmissions"]:
        where = one["position"] or "not sent yet"
        click.echo(
            f"resubmitted by {printable(one['who'])} at {one['at']} as attempt {one['attempt']} "
            f"({'corrected' if one['corrected'] else 'unchanged'}): {where}: {one['verdict']}"
        )
    for one in reject["acts"]:
        why = f": {printable(one['why'])}" if one["why"] else ""
        click.echo(
            f"act {one['number']}: {one['act']} by {printable(one['who'])}, {one['at']}{why}"
        )


def _facts(reject: Mapping[str, Any]) -> list[tuple[str, str]]:
    now, follows = reject["now"], reject["follows"]
    help_ = "" if reject["unchanged_can_help"] else "; the same bytes again cannot help"
    facts = [
        ("id", reject["quarantine_id"]),
        ("type", reject["record_type"]),
        ("safety", reject["safety"]),
        ("reason", f"{reject['reason']}: {reject['meaning']}"),
        ("fixed by", reject["fixed_by"] + help_),
        ("failed", _detail(reject["detail"])),
        ("attempt", str(reject["attempt"])),
        ("key", reject["key"]),
        ("correlation id", reject["correlation_id"]),
        ("headers", ", ".join(f"{h['name']}={h['value']}" for h in reject["headers"]) or None),
        ("bytes", f"{reject['bytes']} ({reject['encoding']})"),
        ("sha-256", reject["sha256"]),
        ("now", _now(now)),
        ("unchanged", now["obstacle"] and f"not sent again: {now['obstacle']}"),
    ]
    if follows is not None:
        sure = "" if follows["on_record"] else " (its header says so, nothing on record does)"
        facts.append(("follows", follows["quarantine_id"] + sure))
    return [(name, value) for name, value in facts if value is not None]


def _now(now: Mapping[str, Any]) -> str:
    held = f" of {now['holder']}" if now["holder"] else ""
    detail = f" ({_detail(now['detail'])})" if now["detail"] else ""
    return f"would be {now['verdict']}{held}{detail}"


# --- resubmit and dismiss -------------------------------------------------------------------------


def show_summary(summary: Summary, more: int, *, as_json: bool) -> None:
    """What a resubmission did, or would do."""
    if as_json:
        click.echo(json.dumps({**summary.as_dict(), "more": more}))
        return
    out = console()
    if summary.items:
        found = table("id", "", "now", "")
        for one in summary.items:
            why = printable(one.why or "")
            found.add_row(str(one.position), one.outcome, one.verdict or "", why)
        out.print(found)
    count = summary.resubmitted + summary.already + summary.refused
    if count > len(summary.items):
        click.echo(f"... and {count - len(summary.items)} more of these")
    did = "resubmitted" if summary.acted else "would be resubmitted"
    click.echo(f"{summary.resubmitted} {did}{_tally(summary.verdicts)}")
    if summary.already:
        click.echo(f"{summary.already} were resubmitted before")
    if summary.refused:
        click.echo(f"{summary.refused} not sent{_tally(summary.whys)}")
    if summary.owed:
        owed = "sent that an earlier run had left" if summary.acted else "are owed by earlier runs"
        click.echo(f"{summary.owed} {owed}")
    _last(more, acted=summary.acted)


def _tally(counts: Mapping[str, int]) -> str:
    said = "; ".join(f"{number} {printable(name)}" for name, number in sorted(counts.items()))
    return f": {said}" if said else ""


def _last(more: int, *, acted: bool) -> None:
    if more:
        click.echo(f"{more} more match and were left out (--limit)")
    if not acted:
        click.echo("nothing was done: --yes --why TEXT does it")


def show_dismissals(summary: DismissSummary, more: int, *, as_json: bool) -> None:
    """What a dismissal did, or would do."""
    if as_json:
        click.echo(json.dumps({**summary.as_dict(), "more": more}))
        return
    click.echo(f"{summary.dismissed} {'dismissed' if summary.acted else 'would be dismissed'}")
    if summary.already:
        click.echo(f"{summary.already} were dismissed before")
    if summary.resubmitted:
        click.echo(f"{summary.resubmitted} were resubmitted: what became of that is the answer")
    if summary.safety_critical:
        click.echo(
            f"{summary.safety_critical} are inspections with an open major or out-of-service "
            "defect: spell out the ID of each"
        )
    if summary.unknown:
        click.echo(f"{summary.unknown} are not in quarantine")
    _last(more, acted=summary.acted)
