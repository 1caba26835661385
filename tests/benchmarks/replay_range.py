"""Replaying a range of committed events: rate, peak memory, and whether two runs are the same.

`python -m tests.benchmarks.replay_range [RECORDS]` starts services of its own, publishes committed
events once, and runs `weighbridge replay` in processes of their own, twice per format. With
`--profile` one Parquet run is made in this process under cProfile. Not a test: figures depend on
the machine.
"""

from __future__ import annotations

import asyncio
import cProfile
import hashlib
import os
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import duckdb
from aiokafka import AIOKafkaProducer
from rich.console import Console

from connectors.embedded.services import EmbeddedServices
from connectors.kafka.topics import create_topics
from schemas import envelope
from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted
from streams.cli import main as command
from streams.decide import decide_batch
from streams.settings import Settings
from streams.wiring import kafka_settings
from tests.benchmarks.one_worker import PARTITIONS, statement

PAYROLL = RECORD_TYPES["payroll"]
AT_ONCE = 20_000
AT_MS = 1_793_500_000_000


async def publish(bootstrap: str, records: int) -> None:
    """Fill the committed topic with what the gate would emit for clean statements."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=50,
        max_batch_size=256 * 1024,
        compression_type="snappy",
    )
    await producer.start()
    for first in range(0, records, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, records))
        waiting = []
        for partition in range(PARTITIONS):
            source = Source(PAYROLL.raw_topic, partition)
            raw = [
                Record(n, statement(n), AT_MS + n) for n in numbers if n % PARTITIONS == partition
            ]
            for one in decide_batch(raw, PAYROLL, source, DecisionSet(), {}):
                assert isinstance(one, Accepted)
                event_id = str(source.position(one.offset)).encode()
                waiting.append(
                    await producer.send(
                        PAYROLL.committed_topic,
                        one.event_value,
                        key=one.event_key,
                        partition=partition,
                        timestamp_ms=one.timestamp,
                        headers=[(envelope.EVENT_ID, event_id)],
                    )
                )
        await asyncio.gather(*waiting)
    await producer.stop()


def run(bootstrap: str, out: Path) -> tuple[float, float, float]:
    """One replay in a process of its own: seconds, seconds of CPU, peak resident MiB."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "replay", "payroll", "--out", str(out)],
        env={**os.environ, "WEIGHBRIDGE_KAFKA_BOOTSTRAP": bootstrap},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    spent_s = time.perf_counter() - began_s
    return spent_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measure(console: Console, bootstrap: str, records: int, folder: Path) -> None:
    """Every format twice."""
    for ending in ("parquet", "jsonl", "csv"):
        files = [folder / f"{turn}.{ending}" for turn in ("first", "second")]
        for file in files:
            spent_s, cpu_s, peak = run(bootstrap, file)
            console.print(
                f"{ending}: {records} events in {spent_s:.1f} s with start: "
                f"{records / spent_s:.0f}/s; CPU {cpu_s / records * 1e6:.1f} µs/event; "
                f"peak {peak:.0f} MiB; {file.stat().st_size / 2**20:.1f} MiB"
            )
        beside = [file.with_name(f"{file.name}.manifest.json") for file in files]
        same = digest(files[0]) == digest(files[1]), digest(beside[0]) == digest(beside[1])
        console.print(f"{ending}: two runs the same: file {same[0]}, manifest {same[1]}")
    console.print((folder / "first.parquet.manifest.json").read_text(encoding="utf-8")[:1800])
    sums = "SELECT count(*), sum(gross_pay), sum(hours) FROM read_parquet(?)"
    console.print("DuckDB:", duckdb.execute(sums, [str(folder / "first.parquet")]).fetchall())


def profile(console: Console, bootstrap: str, folder: Path) -> None:
    """One Parquet run under cProfile."""
    arguments = ["weighbridge", "replay", "payroll", "--out", str(folder / "profiled.parquet")]
    profiler = cProfile.Profile()
    with (
        patch.object(sys, "argv", arguments),
        patch.dict(os.environ, {"WEIGHBRIDGE_KAFKA_BOOTSTRAP": bootstrap}),
    ):
        profiler.enable()
        try:
            command()
        except SystemExit as ended:
            console.print(f"exit code {ended.code}")
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    """See the module's text."""
    arguments = [one for one in sys.argv[1:] if not one.startswith("--")]
    records = int(arguments[0]) if arguments else 400_000
    console = Console()
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with EmbeddedServices(folder) as services:
            settings = Settings.load(kafka_bootstrap=services.bootstrap)
            topics = create_topics(
                kafka_settings(settings), [PAYROLL], partitions=PARTITIONS, replication=1
            )
            asyncio.run(topics)
            asyncio.run(publish(services.bootstrap, records))
            if "--profile" in sys.argv:
                profile(console, services.bootstrap, folder)
            else:
                measure(console, services.bootstrap, records, folder)


if __name__ == "__main__":
    main()
