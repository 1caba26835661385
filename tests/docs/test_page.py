"""How a page of docs/ is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import Command, FileToWrite, steps

PAGE = """# A page

<!-- file: one.json -->
```json
{"a": 1}
```

```json
{"shown": "only"}
```

```console
$ first --flag  # exits with 1
out ...

more
$ second \\
    --long
$ third &
```
"""


def test_files_and_commands_are_found_in_order(tmp_path: Path) -> None:
    """Files are written, commands run, other blocks are for the eye alone."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert steps(page) == [
        FileToWrite("one.json", '{"a": 1}\n'),
        Command(13, "first --flag", 1, "out ...\n\nmore\n", background=False),
        Command(17, "second --long", 0, None, background=False),
        Command(19, "third", 0, None, background=True),
    ]


@pytest.mark.parametrize("text", ["```console\n$ a\n", "```console\nno command\n```\n"])
def test_a_page_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    """A block that is never closed would hide the commands after it."""
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="line"):
        steps(page)
