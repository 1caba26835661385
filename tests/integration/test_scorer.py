"""The scorer on real Kafka: real worker processes, aborted transactions, crashes, rebalances."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.inspections import TRACTOR, certification, defect, members
from tests.integration.scorers import Site
from tests.servers import Services

COMBINATION = [
    {"role": "power_unit", "vin": TRACTOR},
    {"role": "trailer", "unit_number": "T-9"},
]


@pytest.fixture
async def site(services: Services, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Site]:
    """Topics of the test's own."""
    found = Site(services.bootstrap, topic_prefix, tmp_path)
    await found.prepare()
    yield found
    await found.finish()


async def test_scores_survive_aborts_duplicates_and_a_kill(site: Site) -> None:
    """Aborted events never count, duplicates count once, each unit of a combination has its score,
    and after a SIGKILL the table comes back and goes on from where it stood."""
    first = site.events(
        [
            members("R1", defect("tires", unit=1), defect("horn", unit=0), units=COMBINATION),
            members("R2", defect("steering")),
        ]
    )
    aborted = site.events([members("R3", defect("service_brakes", "out_of_service"))])
    await site.emit(first[:1])
    await site.emit(aborted * 3, abort=True)
    await site.emit([*first, *first])
    scorer = await site.scorer()
    await scorer.until({TRACTOR: "6.00", "T-9": "4.00"})
    status, body = await scorer.page("nobody")
    assert (status, body["unit"]) == (404, "nobody")
    await scorer.kill()

    await site.emit(site.events([certification("R2"), members("R4", defect("horn"))]))
    await site.emit(first)
    scorer = await site.scorer()
    await scorer.until({TRACTOR: "4.00", "T-9": "4.00"})
    _, body = await scorer.page(TRACTOR)
    assert [one["part"] for one in body["open_defects"]] == ["horn", "horn"]
    await site.until_offset(0, 16)
    assert await scorer.stop() == 0


async def test_two_workers_share_the_units_and_take_over(site: Site) -> None:
    """Workers that come and go while reports, certifications and duplicates arrive lose and double
    nothing; either shows every unit's score, whichever of them has it."""
    numbers = range(12)
    one = site.events([_report(n, defect("horn")) for n in numbers])
    two = site.events([_report(n, defect("tires"), report_id=f"late-{n}") for n in numbers])
    repairs = site.events([certification(f"R{n}", units=_unit(n)) for n in numbers[::2]])
    first = await site.scorer()
    await site.emit(one)
    await first.until({f"U-{n}": "2.00" for n in numbers})
    second = await site.scorer()
    await site.emit([*two[:6], *one], partition=1)
    expected = {f"U-{n}": "6.00" if n < 6 else "2.00" for n in numbers}
    await second.until(expected)
    await first.until(expected)
    await site.emit([*two[6:], *two[:3]])
    await first.kill()
    await site.emit([*repairs, *one], partition=1)
    await second.until({f"U-{n}": "6.00" if n % 2 else "4.00" for n in numbers})
    assert await second.stop() == 0


@pytest.mark.nightly
@pytest.mark.timeout(400)
async def test_a_backlog_larger_than_the_buffers_survives_workers_that_come_and_go(
    site: Site,
) -> None:
    """More events than Faust buffers, half of them certifications, while one worker joins and one
    dies: every unit has its score, so none was lost on the way."""
    count = 3_000
    opened = site.events([_report(n, defect("horn")) for n in range(count)])
    repairs = site.events([certification(f"R{n}", units=_unit(n)) for n in range(0, count, 2)])
    await site.emit(opened, fast=True)
    await site.emit([*repairs, *opened], partition=1, fast=True)
    first = await site.scorer()
    await first.until({"U-50": "0.00"})
    second = await site.scorer()
    await second.until({f"U-{count // 3 + 1}": "2.00"})
    await first.kill()
    last = await site.scorer()
    sampled = (*range(0, count, 97), *range(count - 40, count))
    expected = {f"U-{n}": "2.00" if n % 2 else "0.00" for n in sampled}
    await second.until(expected, deadline_s=200.0)
    await last.until(expected)


def _unit(number: int) -> list[dict[str, str]]:
    return [{"role": "trailer", "unit_number": f"U-{number}"}]


def _report(number: int, *defects: Mapping[str, Any], report_id: str | None = None) -> Any:
    return members(report_id or f"R{number}", *defects, units=_unit(number))


async def test_an_event_that_cannot_be_decoded_stops_the_worker_every_time(site: Site) -> None:
    """Exit code 3, saying where and why; what came before is kept, the event is not acknowledged,
    and a restart stops at it again: nothing is skipped."""
    good, after = site.events([members("R1", defect()), members("R2", defect())])
    poison = (good[0], b"\xc3\x01" + bytes(8) + b"secret", b"dvir.raw/1/0/9")
    await site.emit([good, poison, after])
    for _ in range(2):
        scorer = await site.scorer()
        assert await scorer.ended() == 3
        said = scorer.text()
        assert (
            f"stopped at {site.topic}/0/1, which is not acknowledged: no committed schema" in said
        )
        assert "secret" not in said
        assert (await site.offsets())[0] <= 1


async def test_a_worker_that_cannot_start_says_what_to_set(site: Site) -> None:
    """A wrong table of weights is a wrong setting, in one line."""
    wrong = site.folder / "weights.csv"
    wrong.write_text("nothing\n")
    scorer = await site.scorer(scorer_weights=wrong)
    assert await scorer.ended() == 2
    assert scorer.text().startswith(f"weighbridge: weights {wrong}: line 1: the columns are")
