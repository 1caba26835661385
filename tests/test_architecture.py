"""House rules that a machine can check: who imports whom, what stays pure, how long things are.

An exception stands in one of the tables below, with its reason; a table that lists more than it
must fails as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from streams import metrics

ROOT = Path(__file__).parents[1]
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

# A package imports from itself and from those to its left.
LAYERS = ("schemas", "connectors", "streams")

# At the end of the line: they use everything and nothing uses them.
ENDS = ("streams.cli", "streams.demo", "streams.bench", "streams.console")

IMPURE_MODULES = {
    "asyncio",
    "datetime.now",
    "http",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "urllib.request",
    "uuid",
    "aiohttp",
    "aiokafka",
    "asyncpg",
    "faust",
    "mode",
    "structlog",
}
CLOCK_CALLS = {"now", "utcnow", "today", "monotonic", "perf_counter"}

LONG_MODULES = {
    "streams/partition.py": "one state machine; half of its moves would explain nothing",
    "connectors/memory.py": "three ports over one world, which only make sense read together",
}

FLOATS = {
    "streams/backoff.py": "seconds to wait",
    "streams/demo/encoding.py": "makes the fault `float_money` on purpose",
}

ENVIRONMENT_READERS = {
    "streams/settings.py": "the one place where settings are read",
    "streams/cli/options.py": "hands --config on to settings.py",
    "streams/demo/worker_process.py": "gives a child the environment without our settings in it",
    "connectors/embedded/jars.py": "the cache of downloads belongs to the machine, not to a run",
}

PRINTERS = ("streams/cli/", "streams/demo/")


@dataclass(frozen=True)
class Module:
    """A source file of the three packages."""

    path: Path
    tree: ast.Module
    lines: int

    @property
    def relative(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def dotted(self) -> str:
        return self.relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def layer(self) -> str:
        return self.relative.split("/")[0]

    def imports(self) -> Iterator[tuple[str, int]]:
        """Dotted names of all it imports, wherever in the file, with their lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)

    def calls(self) -> Iterator[tuple[str, int]]:
        """Last names of all it calls, with their lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    yield node.func.id, node.lineno
                elif isinstance(node.func, ast.Attribute):
                    yield node.func.attr, node.lineno


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found.append(Module(path, ast.parse(text), text.count("\n")))
    return tuple(found)


def within(name: str, parents: set[str] | tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


def test_packages_import_only_from_those_to_their_left() -> None:
    """The direction is schemas <- connectors <- streams, without exception."""
    wrong = [
        f"{module.relative}:{line} imports {name}"
        for module in modules()
        for name, line in module.imports()
        if within(name, LAYERS[LAYERS.index(module.layer) + 1 :]) or name.startswith((".", "tests"))
    ]
    assert not wrong


def test_nothing_imports_from_the_ends() -> None:
    """Commands, demonstration, benchmark and console use the rest; the rest does not know them."""
    wrong = [
        f"{module.relative}:{line} imports {name}"
        for module in modules()
        if not within(module.dotted, ENDS)
        for name, line in module.imports()
        if within(name, ENDS)
    ]
    assert not wrong


def test_schemas_are_pure() -> None:
    """What a record is does not depend on network, clock, environment, chance or a loop."""
    wrong = []
    for module in modules():
        if module.layer != "schemas":
            continue
        imports = [(n, line) for n, line in module.imports() if within(n, IMPURE_MODULES)]
        calls = [(n, line) for n, line in module.calls() if n in CLOCK_CALLS]
        awaits = [
            (type(node).__name__, node.lineno)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        ]
        wrong += [f"{module.relative}:{line} {name}" for name, line in imports + calls + awaits]
    assert not wrong


def test_deciding_and_settling_read_no_clock() -> None:
    """Deciding is a function of the record and the decision set (G4); settling is recorded."""
    pure = {"streams/settle.py", "streams/decide.py", "streams/chunk.py"}
    pure |= {"streams/scoring.py", "streams/weights.py"}
    wrong = [
        f"{module.relative}:{line} {name}"
        for module in modules()
        if module.relative in pure
        for name, line in (*module.imports(), *module.calls())
        if within(name, IMPURE_MODULES) or name in CLOCK_CALLS
    ]
    assert not wrong


def test_no_float_on_any_money_path() -> None:
    """Nothing is turned into a float, and `schemas` holds not even a float literal."""
    wrong = []
    for module in modules():
        if module.relative in FLOATS:
            continue
        wrong += [f"{module.relative}:{line} float()" for n, line in module.calls() if n == "float"]
        if module.layer == "schemas":
            wrong += [
                f"{module.relative}:{node.lineno} {node.value}"
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, float)
            ]
    assert not wrong


def test_the_environment_is_read_in_its_own_places() -> None:
    """Settings come from one catalogue; whoever else touches the environment has a reason."""
    readers = {
        module.relative
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
    }
    assert readers - set(ENVIRONMENT_READERS) == set()


def test_only_commands_and_the_demonstration_print() -> None:
    """Everything else logs."""
    wrong = [
        f"{module.relative}:{line}"
        for module in modules()
        if not module.relative.startswith(PRINTERS)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        for line in (node.lineno,)
    ]
    assert not wrong


def test_modules_are_short() -> None:
    """A module has at most 400 lines, or a reason."""
    long = {module.relative for module in modules() if module.lines > MODULE_LINES_MAX}
    assert long - set(LONG_MODULES) == set()


def test_functions_are_short() -> None:
    """A function has at most 70 lines."""
    long = [
        f"{module.relative}:{node.lineno} {node.name}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


def test_exceptions_name_files_that_exist() -> None:
    """A table of exceptions holds nothing that has gone."""
    listed = {*LONG_MODULES, *FLOATS, *ENVIRONMENT_READERS}
    assert listed - {module.relative for module in modules()} == set()


def test_every_metric_name_is_in_the_catalogue() -> None:
    """The names that mypy accepts are those that have a meaning written beside them."""
    assert set(get_args(metrics.Name)) == set(metrics.CATALOGUE)


def test_sql_of_the_connector_lies_in_sql_files() -> None:
    """Python of the PostgreSQL connector holds no query."""
    verbs = ("select ", "insert ", "update ", "delete ", "with ", "create ", "truncate ")
    wrong = [
        f"{module.relative}:{node.lineno}"
        for module in modules()
        if module.relative.startswith("connectors/postgres/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.lower().startswith(verbs)
        and ast.get_docstring(module.tree, clean=False) != node.value
        and not _is_docstring(module.tree, node)
    ]
    assert not wrong


def _is_docstring(tree: ast.Module, constant: ast.Constant) -> bool:
    return any(isinstance(node, ast.Expr) and node.value is constant for node in ast.walk(tree))


# --- Record types ---------------------------------------------------------------------------------

FOLDERS = sorted(path.parent for path in (ROOT / "schemas").glob("*/migrations"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_record_type_has_all_its_parts(folder: Path) -> None:
    """A record type is one folder with everything that belongs to it."""
    wanted = ("__init__.py", "raw.v1.avsc", "committed.v1.avsc", "model.py", "checks.py")
    missing = [name for name in (*wanted, "README.md") if not (folder / name).is_file()]
    missing += [
        f"{name}/" for name in ("migrations", "examples/valid") if not _filled(folder / name)
    ]
    assert not missing


def _filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def test_every_folder_of_a_record_type_is_discovered() -> None:
    """No folder is an orphan: what lies in `schemas` as a record type is found as one."""
    from schemas.record_types import RECORD_TYPES

    found = RECORD_TYPES.values()
    assert sorted(record_type.name for record_type in found) == [f.name for f in FOLDERS]
    assert sorted(record_type.folder for record_type in found) == FOLDERS
