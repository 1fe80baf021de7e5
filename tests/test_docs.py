"""Every block of the documents runs, and prints what they say; every example of a docstring too."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
from pathlib import Path

import pytest
from added_rows import taken_out_again

import subgrad

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [document for document in DOCUMENTS if "```python" in document.read_text()]
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


def test_there_are_documents_with_code() -> None:
    assert {document.name for document in WITH_CODE} >= {"README.md", "kinks.md"}


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda path: path.name)
def test_every_block_prints_what_the_document_says(document: Path) -> None:
    blocks = BLOCK.findall(document.read_text())
    assert blocks
    namespace: dict[str, object] = {}  # later blocks build on earlier ones, as readers do
    for code, expected in blocks:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), taken_out_again():
                exec(compile(code, document.name, "exec"), namespace)
        finally:
            subgrad.set_default("torch")
        assert printed.getvalue().strip() == expected.strip()


MODULES = [
    module.name for module in pkgutil.walk_packages(subgrad.__path__, "subgrad.") if "__main__" not in module.name
]


@pytest.mark.parametrize("module", ["subgrad", *MODULES])
def test_every_example_of_a_docstring_runs(module: str) -> None:
    # The functions of subgrad.functional quote torch's own examples, which are not ours to run.
    finder = doctest.DocTestFinder(recurse=module != "subgrad.functional")
    runner = doctest.DocTestRunner()
    for example in finder.find(importlib.import_module(module)):
        runner.run(example)
    assert runner.summarize().failed == 0
