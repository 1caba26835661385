"""The manifest: what a file of records is, in JSON beside it. A function of the range and the log.

It holds no clock, host, path or version of a program: the same range gives the same manifest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from connectors.errors import ConfigurationError
from connectors.export import Format
from connectors.export.new_file import NewFile
from schemas.columns import Column, type_text
from schemas.masking import MASK
from schemas.record_type import RecordType
from streams.replaying.asked import Filters, Kind, Wanted, instant_us, text_of_instant
from streams.replaying.extent import Extent
from streams.replaying.tally import Tally

MANIFEST_VERSION = 1
"""Raised with any change of the manifest's or the files' form."""
MANIFEST_BYTES_MAX = 16 * 1024 * 1024


def manifest_path(file: Path) -> Path:
    """Where a file's manifest lies."""
    return file.with_name(f"{file.name}.manifest.json")


def manifest(
    record_type: RecordType,
    extent: Extent,
    tally: Tally,
    columns: Sequence[Column],
    masked_columns: Sequence[str] | None,
    chosen: Format,
    file: NewFile,
) -> dict[str, Any]:
    """The manifest of a finished file; `masked_columns` is None when all was revealed."""
    found: dict[str, Any] = {
        "format_version": MANIFEST_VERSION,
        "record_type": record_type.name,
        "kind": extent.kind,
        "topic": extent.topic,
        "topic_id": str(extent.topic_id),
        "partitions": [_partition(extent, tally, index) for index in range(len(extent.spans))],
        "filters": _filters(extent.filters, record_type, masked=masked_columns is not None),
        "read": tally.read,
        "written": tally.written,
        "by": dict(sorted(tally.by.items())),
        "content_digest": tally.content_digest,
        "masked": masked_columns is not None,
        "masked_columns": list(masked_columns or ()),
        "columns": [{"name": one.name, "type": type_text(one.type)} for one in columns],
        "format": chosen,
        "bytes": file.bytes,
        "sha256": file.sha256,
    }
    if tally.sums is not None:
        found["sums"] = tally.sums.as_dict()
        found["sums_unreadable"] = tally.sums.unreadable
    return found


def _partition(extent: Extent, tally: Tally, index: int) -> dict[str, Any]:
    span = extent.spans[index]
    found = tally.of(span.partition)
    return {
        "partition": span.partition,
        "first": span.first,
        "end": span.end,
        "first_record": found.first_record,
        "last_record": found.last_record,
        "read": found.read,
        "written": found.written,
        "missing": span.missing,
    }


def _filters(filters: Filters, record_type: RecordType, *, masked: bool) -> dict[str, Any]:
    """A key may name a person, so it is masked like any other value."""
    key = filters.key
    if key is not None and masked and not record_type.shown.message_key:
        key = MASK
    return {
        "since": text_of_instant(filters.since_us),
        "until": text_of_instant(filters.until_us),
        "run": filters.run,
        "key": key,
    }


def manifest_text(found: Mapping[str, Any]) -> str:
    """A manifest as it lies in its file."""
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


# --- Reading one back -----------------------------------------------------------------------------


def wanted_again(path: Path, record_type: RecordType, key: str | None) -> Wanted:
    """The range of an earlier manifest. A key that it masks must be given again.

    Raises `ConfigurationError` for what is no manifest of this record type.
    """
    try:
        if path.stat().st_size > MANIFEST_BYTES_MAX:
            raise _not_one(path, "it is too long")
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format_version"] != MANIFEST_VERSION:
            raise _not_one(path, f"it is of version {found['format_version']}")
        if found["record_type"] != record_type.name:
            raise _not_one(path, f"it is of record type {found['record_type']}")
        return _wanted(path, found, key)
    except OSError as error:
        raise _not_one(path, error.strerror or type(error).__name__) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _not_one(path, "it is no manifest, or damaged") from None


def _wanted(path: Path, found: Mapping[str, Any], key: str | None) -> Wanted:
    filters = found["filters"]
    if filters["key"] == MASK and key is None:
        raise _not_one(path, "it masks the key it was filtered by: say --key again")
    if found["kind"] not in get_args(Kind):
        raise _not_one(path, "it is of another kind of topic")
    first = {int(one["partition"]): int(one["first"]) for one in found["partitions"]}
    end = {int(one["partition"]): int(one["end"]) for one in found["partitions"]}
    return Wanted(
        kind=found["kind"],
        filters=Filters(
            since_us=_instant(filters["since"]),
            until_us=_instant(filters["until"]),
            run=filters["run"],
            key=filters["key"] if filters["key"] != MASK else key,
        ),
        partitions=frozenset(first),
        first=first,
        end=end,
        topic_id=uuid.UUID(found["topic_id"]),
    )


def _instant(text: str | None) -> int | None:
    return None if text is None else instant_us(text, "manifest")


def _not_one(path: Path, why: str) -> ConfigurationError:
    message = f"--from-manifest {path}: {why}"
    return ConfigurationError(message)
