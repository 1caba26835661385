"""What a demo says: the tables for people, the object for scripts. Pure but for printing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schemas.record_types import RECORD_TYPES
from streams.demo.proof import Check, Summary
from streams.demo.site import Site
from streams.demo.worker_process import CONFIG_FILE


@dataclass(slots=True)
class Pace:
    """How long each stage took, in seconds."""

    publish_s: float = 0.0
    gate_s: float = 0.0
    """While the worker made progress, both times; starting and rejoining left out."""
    total_s: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What became of a demo."""

    summaries: list[Summary] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)

    def add(self, name: str, *, expected: str, found: str, ok: bool) -> None:
        """One more thing that must hold."""
        self.checks.append(Check(name, name.replace("_", " "), expected, found, ok))

    @property
    def failed(self) -> list[str]:
        """Names of the checks that do not hold."""
        return [check.name for check in self.checks if not check.ok]

    @property
    def ok(self) -> bool:
        """Whether everything holds; nothing proven is not a proof."""
        return bool(self.summaries) and bool(self.checks) and not self.failed

    def as_json(self) -> str:
        """One object on one line."""
        reasons: dict[str, int] = {}
        for summary in self.summaries:
            for reason, count in summary.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        return json.dumps(
            {
                "in": sum(s.records_in for s in self.summaries),
                "committed": sum(s.committed for s in self.summaries),
                "duplicate": sum(s.duplicate for s in self.summaries),
                "quarantined": sum(s.quarantined for s in self.summaries),
                "reasons": dict(sorted(reasons.items())),
                "balanced": bool(self.summaries) and all(s.balanced for s in self.summaries),
                "proof": {check.name: check.ok for check in self.checks},
                "seconds": round(self.pace.total_s, 2),
            }
        )


def show(console: Console, outcome: Outcome) -> None:
    """The tables and the proof."""
    if outcome.summaries:
        console.print(_counts(outcome))
        console.print(_quarantined(outcome.summaries))
        console.print(_rates(outcome))
    _show_proof(console, outcome.checks)


def show_verdict(console: Console, outcome: Outcome) -> None:
    """The last line."""
    if outcome.ok:
        console.print(f"[bold green]OK[/] everything holds; {outcome.pace.total_s:.1f} s in all")
    else:
        console.print(f"[bold red]FAILED[/] {', '.join(outcome.failed) or 'nothing was proven'}")


def _counts(outcome: Outcome) -> Table:
    table = Table(
        "topic", title="What became of the records", title_justify="left", box=SIMPLE_HEAD
    )
    for heading in ("in", "committed", "duplicate", "quarantined", "balance", "per s"):
        table.add_column(heading, justify="right")
    for s in outcome.summaries:
        numbers = (s.records_in, s.committed, s.duplicate, s.quarantined)
        cells = (f"{number:,}" for number in numbers)
        rate = _rate(s.records_in, outcome.pace.gate_s)
        table.add_row(f"{s.type_name}.raw", *cells, "exact" if s.balanced else "[red]OFF", rate)
    return table


def _quarantined(summaries: Sequence[Summary]) -> Table:
    table = Table("reason", title="Quarantined", title_justify="left", box=SIMPLE_HEAD)
    for s in summaries:
        table.add_column(s.type_name, justify="right")
    for reason in sorted({reason for s in summaries for reason in s.reasons}):
        table.add_row(reason, *(f"{s.reasons.get(reason, 0):,}" for s in summaries))
    return table


def _rates(outcome: Outcome) -> str:
    records = sum(s.records_in for s in outcome.summaries)
    pace = outcome.pace
    return (
        f"published at {_rate(records, pace.publish_s)}/s; through the gate at "
        f"{_rate(records, pace.gate_s)}/s: {pace.gate_s:.1f} s of work of one worker\n"
    )


def _rate(records: int, seconds: float) -> str:
    return f"{records / seconds:,.0f}" if seconds > 0 else "-"


def _show_proof(console: Console, checks: Sequence[Check]) -> None:
    """One line per check; what was expected is said where it was not found."""
    console.print("[italic]Proof, read from outside[/]")
    for check in checks:
        subject = check.name.partition(".")[0] if "." in check.name else "run"
        line = f"{subject:8}{check.what}: {check.found}"
        mark = "[green]✓[/]" if check.ok else "[red]✗[/]"
        if not check.ok:
            line += f" (expected: {check.expected})"
        console.print(f"{mark} {escape(line)}", soft_wrap=True, highlight=False)


def look_around(console: Console, site: Site) -> None:
    """Where everything is, for somebody who kept it."""
    config = site.folder / CONFIG_FILE
    prefix = site.topic_prefix
    topics = " ".join(
        f"{prefix}{name}.{kind}"
        for name in RECORD_TYPES
        for kind in ("raw", "committed", "quarantine")
    )
    stop = (
        f"weighbridge demo --stop --data-dir {site.folder}"
        if site.embedded
        else f"drop database {prefix.rstrip('.')}, topics {prefix}* and group {site.group}"
    )
    lines = [
        "",
        "[bold]Left running; to look around:[/]",
        f"  weighbridge status --config {config}",
        f"  psql {site.worker_dsn if site.embedded else '(the new database)'}",
        "       select * from payroll_totals;",
        "       select reason, count(*) from quarantine group by reason order by 2 desc;",
        "       select * from partition_cursor;",
        f"  Kafka {site.kafka_bootstrap}, topics {topics}",
        f"  weighbridge worker --config {config}",
        f"  to stop: {stop}",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
