"""Records from files on this machine: NDJSON and CSV, read as a stream in bounded memory."""

from connectors.files.rows import FileRow, MalformedFile, SourceReader
from connectors.files.source_file import (
    MANIFEST_SUFFIX,
    STATE_SUFFIX,
    SUFFIXES,
    Checked,
    Identity,
    SourceFile,
    find_files,
    read_records,
)
from connectors.files.state_file import StateFile

__all__ = [
    "MANIFEST_SUFFIX",
    "STATE_SUFFIX",
    "SUFFIXES",
    "Checked",
    "FileRow",
    "Identity",
    "MalformedFile",
    "SourceFile",
    "SourceReader",
    "StateFile",
    "find_files",
    "read_records",
]
