"""The catalogue of settings: every one with its type, default, unit and meaning.

Taken from, first wins: flags, environment (`WEIGHBRIDGE_<NAME>`), the TOML file named by
`--config` or `WEIGHBRIDGE_CONFIG` (default `weighbridge.toml` where the command runs), the default.
Nothing else in the project reads the environment. Secrets are masked wherever settings are shown.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from connectors.errors import ConfigurationError

DEFAULT_FILE = Path("weighbridge.toml")


class Settings(BaseSettings):
    """All settings of all commands."""

    model_config = SettingsConfigDict(
        env_prefix="WEIGHBRIDGE_", extra="forbid", frozen=True, env_ignore_empty=True
    )

    kafka_bootstrap: str | None = Field(
        None,
        description="Kafka brokers, `host:port[,host:port]`. Unset: the embedded one of `dev`.",
    )
    group: str = Field("weighbridge", description="Consumer group of the workers.", min_length=1)
    topic_prefix: str = Field("", description="Put before every topic's name on a shared cluster.")
    session_timeout_ms: int = Field(
        10_000, ge=1_000, description="How long a silent worker keeps its partitions."
    )
    transaction_timeout_ms: int = Field(
        15_000, ge=1_000, description="How long a dead worker's open transaction holds readers up."
    )

    postgres_dsn: SecretStr | None = Field(
        None, description="PostgreSQL as the worker's role. Unset: the embedded one of `dev`."
    )
    postgres_owner_dsn: SecretStr | None = Field(
        None, description="PostgreSQL as the owner of the schema: `db migrate` only."
    )
    postgres_operator_dsn: SecretStr | None = Field(
        None,
        description="PostgreSQL as `weighbridge_operator`: acts on rejects, and what is revealed.",
    )
    operator: str | None = Field(
        None,
        description="Who acts, for the record of operations. Unset: the system's user name.",
        min_length=1,
        max_length=200,
    )
    pool_size: int = Field(4, ge=1, description="Database connections of one worker.")
    statement_cache_size: int = Field(
        100, ge=0, description="0 behind a pooler in transaction mode."
    )
    batch_deadline_s: float = Field(
        30.0,
        gt=0,
        description="Budget of one batch's transaction; database timeouts derive from it.",
    )

    batch_records: int = Field(2_000, ge=1, le=50_000, description="Most records in a batch.")
    batch_bytes: int = Field(
        8 * 1024 * 1024, ge=1_000_000, description="Most bytes of values in a batch."
    )
    batch_linger_ms: int = Field(
        50, ge=0, description="How long to wait for a batch to fill when traffic is thin."
    )
    concurrency: int = Field(
        4, ge=1, description="Batches of different partitions at work at once."
    )
    stall_s: float = Field(
        60.0, gt=0, description="Work without progress for so long is a stall; it is healed."
    )
    stopped_retry_s: float = Field(
        30.0, gt=0, description="How often a stopped partition looks whether you have acted."
    )
    breaker_types: str = Field(
        "payroll",
        description="Record types whose partitions pause for a flood of rejects; or `none`.",
    )
    breaker_window: int = Field(
        1_000, ge=1, description="Newest records the breaker looks at; a chunk counts as one."
    )
    breaker_percent: int = Field(
        50, ge=1, le=100, description="Share of rejects among them that pauses a partition."
    )
    breaker_counted_min: int = Field(
        1_000, ge=1, description="With fewer records than this the breaker says nothing."
    )
    shutdown_deadline_s: float = Field(20.0, gt=0, description="How long a graceful stop may take.")

    schema_store: Path | None = Field(
        None, description="Folder of writer schemas, `<id>.avsc`, for Confluent-framed Avro."
    )
    http_host: str = Field("127.0.0.1", description="Where /live, /ready and /metrics listen.")
    http_port: int = Field(8080, ge=0, le=65535, description="0 takes a free port.")
    scorer_id: str = Field(
        "weighbridge-scorer",
        min_length=1,
        description="The scorer's consumer group; its topics and table begin with it.",
    )
    scorer_weights: Path | None = Field(
        None, description="CSV file of the scorer's weights. Unset: the shipped example."
    )
    scorer_http_port: int = Field(
        6066, ge=1, le=65535, description="Where the scorer shows /score/<unit>/."
    )
    log_format: Literal["console", "json"] = Field("console", description="Form of log lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level logged."
    )
    data_dir: Path = Field(
        Path.home() / ".local" / "share" / "weighbridge",
        description="Where embedded services keep their data.",
    )
    partitions: int = Field(4, ge=1, description="Partitions that `topics create` gives a topic.")
    replication: int = Field(1, ge=1, description="Replicas that `topics create` gives a topic.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, TOML file."""
        file = _config_file()
        sources = [init_settings, env_settings]
        if file is not None:
            sources.append(TomlConfigSettingsSource(settings_cls, toml_file=file))
        return tuple(sources)

    @classmethod
    def load(cls, **flags: object) -> Self:
        """Read all sources. Raises `ConfigurationError` naming each setting that is wrong."""
        given = {name: value for name, value in flags.items() if value is not None}
        try:
            return cls(**given)  # type: ignore[arg-type]
        except ValidationError as error:
            message = "settings: " + "; ".join(_explained(one) for one in error.errors())
            raise ConfigurationError(message) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            message = f"settings: {_config_file()} cannot be read as TOML ({_why(error)})"
            raise ConfigurationError(message) from None

    def shown(self) -> dict[str, str]:
        """Every setting as text, secrets masked, for `weighbridge settings` and logs."""
        return {name: str(value) for name, value in self.model_dump().items()}


def _explained(error: ErrorDetails) -> str:
    """One wrong setting: its name and the rule, never its value, which may be a secret."""
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{name}: there is no such setting (`weighbridge settings` lists all)"
    return f"{name}: {error['msg']}"


def _why(error: Exception) -> str:
    """Where a file is broken: the parser's words hold a place and a rule, no value."""
    return str(error) if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__


def _config_file() -> Path | None:
    """The TOML file, if there is one. Raises `ConfigurationError` for a named one that is not."""
    named = os.environ.get("WEIGHBRIDGE_CONFIG")
    if named is None:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    if not Path(named).is_file():
        message = f"WEIGHBRIDGE_CONFIG names {named}, which is not a file"
        raise ConfigurationError(message)
    return Path(named)
