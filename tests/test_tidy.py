"""Rules of the house that no linter knows. Fix the code, not the rule."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dmq"
PURE = ("wire/", "raft/", "machines/", "records.py", "types.py", "errors.py")
PURE_MAY_IMPORT = {
    "abc", "base64", "bisect", "collections", "crc32c", "dataclasses", "dmq", "enum", "functools",
    "heapq", "importlib", "itertools", "json", "math", "operator", "re", "struct", "types", "typing",
    "uuid", "zlib",
}  # fmt: skip
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 700


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        yield path.relative_to(SOURCE).as_posix(), text, ast.parse(text)


def imported_roots(tree: ast.Module) -> set[str]:
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            roots.add((node.module or "").split(".")[0])
    return roots


def test_pure_modules_import_only_pure_things() -> None:
    for name, _, tree in modules():
        if name.startswith(PURE):
            assert imported_roots(tree) <= PURE_MAY_IMPORT, name


def test_only_files_calls_the_operating_system_in_storage() -> None:
    for name, _, tree in modules():
        if name.startswith("storage/") and name != "storage/files.py":
            forbidden = {"os", "fcntl", "mmap", "pathlib", "shutil", "socket", "time", "threading"}
            assert not imported_roots(tree) & forbidden, name


def test_below_the_runtime_there_is_no_clock_and_no_loop() -> None:
    outside = {"broker/runtime.py", "broker/syncer.py", "broker/compactor.py"}
    for name, _, tree in modules():
        if name.startswith(("broker/", "storage/")) and name not in outside:
            forbidden = {"asyncio", "socket", "threading", "time", "random"}
            assert not imported_roots(tree) & forbidden, name


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, _, tree in modules() if not ast.get_docstring(tree)] == []


def test_nothing_outgrows_the_screen() -> None:
    long: list[str] = []
    for name, text, tree in modules():
        if text.count("\n") > FILE_LINES_MAX:
            long.append(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                # Its body: the options of a command make a long signature, not a long function.
                if node.end_lineno - node.body[0].lineno + 1 > FUNCTION_LINES_MAX:
                    long.append(f"{name}:{node.name}")
    assert long == []


def test_nothing_is_left_to_fix() -> None:
    found = [name for name, text, _ in modules() if re.search(r"\b(FIXME|XXX)\b", text)]
    assert found == []


def test_tests_wait_on_conditions_and_never_sleep() -> None:
    """`eventually` is the one place that may pause between two looks at a condition."""
    tracked = subprocess.run(
        ["git", "ls-files", "tests/**.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    found = [
        name
        for name in tracked
        if Path(name).name not in ("eventually.py", "test_tidy.py")
        and (ROOT / name).exists()
        and re.search(r"\bsleep\((?!0\))", (ROOT / name).read_text())  # 0 only yields.
    ]
    assert found == []


def test_documents_have_one_title_and_links_that_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
        assert len(re.findall(r"^# ", text, flags=re.M)) == 1, path
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
