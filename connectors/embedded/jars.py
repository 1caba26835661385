"""The jars of Apache Kafka: which ones, from where, and whether they are what they should be.

`kafka-jars.lock` names every jar with its size and SHA-256, so nothing is resolved at run time and
nothing unpinned is ever executed. A jar enters the cache under its final name only after its digest
was compared: what lies there needs neither network nor a second look.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.errors import ConfigurationError

if TYPE_CHECKING:
    from jgo.maven import Artifact, MavenContext

    from connectors.embedded.processes import Progress

KAFKA_VERSION = "4.3.1"
KAFKA = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"
LOG_BINDING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
"""Kafka's own jars bring log4j2 but nothing that connects it to slf4j 1.7."""
LOCK = Path(__file__).with_name("kafka-jars.lock")
REQUEST_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Jar:
    """A line of the lock file."""

    coordinates: str
    """`group:artifact:version`."""
    size: int
    """Bytes."""
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the cache."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


def cache_dir() -> Path:
    """Where downloads are kept: WEIGHBRIDGE_CACHE, or `~/.cache/weighbridge`."""
    named = os.environ.get("WEIGHBRIDGE_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "weighbridge"


def locked_jars() -> tuple[Jar, ...]:
    """The jars of the lock file."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return tuple(Jar(coordinates, int(size), sha256) for coordinates, size, sha256 in rows)


def kafka_jars(progress: Progress | None = None) -> tuple[Path, ...]:
    """Paths of all jars, downloaded from Maven Central where the cache lacks them.

    Guarantees: safe when several processes ask at once; an interrupted download goes on where it
    stood. Blocks: about ten seconds with an empty cache, nothing with a full one. Raises
    `ConfigurationError` when a jar is lacking and cannot be had.
    """
    folder = cache_dir() / f"kafka-{KAFKA_VERSION}"
    jars = locked_jars()
    if any(not (folder / jar.file_name).is_file() for jar in jars):
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder):
            _download(jars, folder, progress)
    return tuple(folder / jar.file_name for jar in jars)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(jars: Sequence[Jar], folder: Path, progress: Progress | None) -> None:
    total = sum(jar.size for jar in jars)
    done = 0
    what = f"Apache Kafka {KAFKA_VERSION}"
    for jar in jars:
        if not (folder / jar.file_name).is_file():
            _fetch(jar, folder)
        done += jar.size
        if progress is not None:
            progress(what, done, total)
    shutil.rmtree(folder / "downloads", ignore_errors=True)


def _fetch(jar: Jar, folder: Path) -> None:
    """Download one jar, compare it, and move it into place."""
    downloads = folder / "downloads"
    artifact = _artifact(_maven(downloads), jar.coordinates)
    if artifact.cached_path is not None:
        artifact.cached_path.unlink(missing_ok=True)  # A download that was cut off.
    try:
        fetched = artifact.resolve()
    # jgo raises RuntimeError for "not found" and whatever its HTTP client raises for the rest.
    except (OSError, RuntimeError) as error:
        message = (
            f"Apache Kafka {KAFKA_VERSION} is not complete in {folder} and {jar.coordinates} could"
            f" not be downloaded from Maven Central ({type(error).__name__}). The first start needs"
            " network access; later ones do not. Without network: copy that folder from a machine"
            " that has it, name another cache with WEIGHBRIDGE_CACHE, or use a Kafka that runs"
            " already (setting kafka_bootstrap)."
        )
        raise ConfigurationError(message) from None
    if hashlib.sha256(fetched.read_bytes()).hexdigest() != jar.sha256:
        fetched.unlink()
        message = f"{jar.coordinates}: the downloaded file is not the one that {LOCK.name} pins"
        raise ConfigurationError(message)
    fetched.replace(folder / jar.file_name)


def _maven(downloads: Path) -> MavenContext:
    try:
        from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415 - an optional extra
    except ImportError:
        message = "embedded Kafka needs the extra `embedded`: pip install 'weighbridge[embedded]'"
        raise ConfigurationError(message) from None
    return MavenContext(resolver=PythonResolver(), repo_cache=downloads, timeout=REQUEST_TIMEOUT_S)


def _artifact(maven: MavenContext, coordinates: str) -> Artifact:
    group, artifact, version = coordinates.split(":")
    return maven.project(group, artifact).at_version(version).artifact()


def write_lock(scratch: Path) -> None:
    """Resolve Kafka's dependencies anew and rewrite the lock file. For maintainers."""
    from jgo.parse import Coordinate  # noqa: PLC0415 - an optional extra

    maven = _maven(scratch)
    wanted = maven.create_dependency(replace(Coordinate.parse(KAFKA), scope="compile"))
    inputs, transitive = maven.resolver.resolve([wanted])
    artifacts = [d.artifact for d in inputs]
    artifacts += [d.artifact for d in transitive if d.scope in ("compile", "runtime")]
    artifacts.append(_artifact(maven, LOG_BINDING))
    rows = []
    for artifact in artifacts:
        content = artifact.resolve().read_bytes()
        name = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        rows.append(f"{name} {len(content)} {hashlib.sha256(content).hexdigest()}\n")
    head = (
        f"# Jars of Apache Kafka {KAFKA_VERSION} and a log4j2 binding: coordinates, bytes, SHA-256."
        "\n# Written by `python -m connectors.embedded.jars SCRATCH_FOLDER`.\n"
    )
    LOCK.write_text(head + "".join(sorted(rows)), encoding="utf-8")


if __name__ == "__main__":
    import sys

    write_lock(Path(sys.argv[1]))
