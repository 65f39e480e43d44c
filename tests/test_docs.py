"""What the README and the docs say: their code parses, their names and options exist, their links lead somewhere."""

import ast
import contextlib
import importlib
import io
import re
import shlex
import textwrap
from functools import cache
from pathlib import Path

import pytest

import rcpo
from rcpo import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").glob("*.md")]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
COMMAND = re.compile(r"^ {4}rcpo (\w+)(.*)$", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    return [(page.name, textwrap.dedent(found[2])) for page in PAGES for found in BLOCK.finditer(page.read_text())]


@pytest.mark.parametrize(("page", "code"), blocks())
def test_code_parses_and_knows_our_names(page: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rcpo":
            assert hasattr(rcpo, node.attr), f"{page}: rcpo.{node.attr}"
        # rcpo.sb3 needs Stable-Baselines3, whose own tests import all of it.
        if isinstance(node, ast.ImportFrom) and re.match(r"rcpo(?!\.sb3)\b", node.module or ""):
            assert node.module
            module = importlib.import_module(node.module)
            assert all(hasattr(module, name.name) for name in node.names), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


@cache
def options_of(command: str) -> frozenset[str]:
    """What a command lists in its help; `train` for each kind of environment, for their settings differ."""
    kinds = [["mars-rover"], ["HalfCheetah-v5"], ["CartPole-v1"]] if command == "train" else [[]]
    said = io.StringIO()
    for words in kinds:
        with contextlib.redirect_stdout(said), pytest.raises(SystemExit):
            cli.main([command, *words, "--help"])
    return frozenset(re.findall(r"--[a-z][\w.-]*", said.getvalue()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_take_what_they_are_given(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    for command, rest in COMMAND.findall(page.read_text()):
        assert command in cli.COMMANDS, command
        given = {word.partition("=")[0] for word in shlex.split(rest, comments=True) if word.startswith("--")}
        assert given - {"--help"} <= options_of(command), f"rcpo {command}"


def test_there_is_something_to_check() -> None:
    assert len(blocks()) > 15 and sum(len(COMMAND.findall(page.read_text())) for page in PAGES) > 20
