"""One worker over many clean statements: rate, memory over time, CPU per record by stage.

`python -m tests.benchmarks.one_worker [RECORDS]` starts services of its own, publishes, runs the
worker in this process under a sampling of its memory, and prints a table. With `--profile` the run
is made under cProfile, which slows it, and the share of each stage is printed instead of the rate.
Not a test: figures depend on the machine.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import resource
import sys
import tempfile
import time
from pathlib import Path

import psutil
import uvloop
from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from connectors.embedded.services import EmbeddedServices
from connectors.kafka.topics import create_topics
from connectors.postgres.migrate import migrate
from connectors.postgres.pool import Pool, PoolSettings
from connectors.postgres.reports import partitions, total
from schemas.record_types import RECORD_TYPES
from streams import logs
from streams.app import Worker
from streams.metrics import Metrics
from streams.observer import Observer
from streams.settings import Settings
from streams.wiring import kafka_settings, worker_parts

PAYROLL = RECORD_TYPES["payroll"]
PARTITIONS = 4
STAGES = {
    "fetch": ("connectors/kafka/source", "connectors/kafka/reading", "consumer/fetcher"),
    "decide": ("streams/decide", "schemas/"),
    "settle": ("streams/settle", "schemas/verdict_page"),
    "persist": ("connectors/postgres", "asyncpg/"),
    "emit": ("connectors/kafka/emitter", "aiokafka/producer", "aiokafka/record"),
}


def statement(number: int) -> bytes:
    """A clean statement of about 360 bytes."""
    members = {
        "employee_id": f"EMP{number:07d}",
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "pay_date": "2026-11-06",
        "source_run_id": "bench/001/R2026-22",
        "gross_pay": f"{1000 + number % 7000}.{number % 100:02d}",
        "net_pay": f"{700 + number % 5000}.{number % 100:02d}",
        "hours": "80.00",
        "pay_code": "REG",
        "pay_group": "BIWK",
        "currency": "USD",
        "tax_jurisdiction": "US-PA:510101",
        "work_location": f"store-{number % 400:03d}",
    }
    return json.dumps(members).encode()


async def publish(bootstrap: str, records: int) -> None:
    """Fill the raw topic."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=50,
        max_batch_size=256 * 1024,
        compression_type="snappy",
    )
    await producer.start()
    waiting: list[asyncio.Future[object]] = []
    for number in range(records):
        sent = await producer.send(PAYROLL.raw_topic, statement(number), key=b"%d" % number)
        waiting.append(sent)
        if len(waiting) == 20_000:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
    await producer.stop()


async def run(settings: Settings, records: int, console: Console) -> tuple[float, list[float]]:
    """Run the worker until all is decided; seconds, and resident memory in MiB each second."""
    process, memory = psutil.Process(), []
    failure: list[BaseException] = []
    async with (
        worker_parts(settings, Observer(Metrics(), failure.append)) as parts,
        Pool(PoolSettings(dsn=str(settings.postgres_dsn.get_secret_value()), pool_size=1)) as pool,  # type: ignore[union-attr]
    ):
        worker = Worker(parts)
        await worker.start()
        began_s = time.perf_counter()
        done, first_s = 0, None
        while done < records and not failure:
            await asyncio.sleep(0.5)
            done = total(await partitions(pool)).records_in
            if done and first_s is None:
                first_s = time.perf_counter()
            memory.append(process.memory_info().rss / 2**20)
            console.print(f"{done:>8} {memory[-1]:.0f} MiB", end="\r")
        spent_s = time.perf_counter() - began_s
        await worker.stop()
    if failure:
        raise failure[0]
    return spent_s, memory


def main() -> None:
    """See the module's text."""
    arguments = [one for one in sys.argv[1:] if not one.startswith("--")]
    records = int(arguments[0]) if arguments else 400_000
    console = Console()
    logs.configure("console", "error")
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedServices(Path(folder)) as services:
            settings = Settings.load(
                kafka_bootstrap=services.bootstrap,
                postgres_dsn=services.postgres.dsn(user="weighbridge_worker"),
            )
            asyncio.run(migrate(services.postgres.dsn()))
            asyncio.run(
                create_topics(
                    kafka_settings(settings),
                    list(RECORD_TYPES.values()),
                    partitions=PARTITIONS,
                    replication=1,
                )
            )
            asyncio.run(publish(services.bootstrap, records))
            profile = cProfile.Profile() if "--profile" in sys.argv else None
            if profile is not None:
                profile.enable()
            cpu = resource.getrusage(resource.RUSAGE_SELF)
            spent_s, memory = uvloop.run(run(settings, records, console))
            after = resource.getrusage(resource.RUSAGE_SELF)
            if profile is not None:
                profile.disable()
            cpu_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
            show(console, records, spent_s, cpu_s, memory)
            if profile is not None:
                show_stages(console, records, profile)


def show(console: Console, records: int, spent_s: float, cpu_s: float, memory: list[float]) -> None:
    """Rate, CPU and memory in quarters of the run."""
    quarter = max(1, len(memory) // 4)
    quarters = [max(memory[i : i + quarter]) for i in range(0, len(memory), quarter)][:4]
    console.print(
        f"{records} records in {spent_s:.1f} s: {records / spent_s:.0f}/s; "
        f"CPU of the worker {cpu_s / records * 1e6:.0f} µs/record; "
        f"resident memory by quarter of the run, MiB: {', '.join(f'{m:.0f}' for m in quarters)}"
    )


def show_stages(console: Console, records: int, profile: cProfile.Profile) -> None:
    """Own time of functions by the stage their file belongs to."""
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    spent: dict[str, float] = dict.fromkeys([*STAGES, "rest"], 0.0)
    for (file, _, _), (_, _, own_s, _, callers) in stats.items():
        for caller, (_, _, caller_s, _) in (
            callers.items() or {(file, 0, ""): (0, 0, own_s, 0)}.items()
        ):
            where = file if file != "~" else caller[0]
            spent[_stage(where)] += caller_s if callers else own_s
    table = Table("stage", "µs per record under the profiler", box=None)
    for stage, seconds in spent.items():
        table.add_row(stage, f"{seconds / records * 1e6:.1f}")
    console.print(table)


def _stage(file: str) -> str:
    for stage, marks in STAGES.items():
        if any(mark in file for mark in marks):
            return stage
    return "rest"


if __name__ == "__main__":
    main()
