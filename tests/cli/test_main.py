# SPDX-License-Identifier: Apache-2.0
"""The dispatcher answers at once, names what exists, and turns our errors into messages."""

import subprocess
import sys

import pytest

from lerobot_craft.cli import _main
from lerobot_craft.errors import RunError, UsageError

PROBE = """
import sys
from lerobot_craft.cli import main
code = main({words!r})
heavy = [name for name in ("torch", "lerobot", "numpy") if name in sys.modules]
sys.exit(code if not heavy else f"imported {{heavy}}")
"""


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout
    assert "lerobot-train + --craft.*" in done.stdout


def test_unknown_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main.main(["trian"]) == 2
    assert "`trian` is no subcommand: expected one of" in capsys.readouterr().err


def test_no_words_is_a_wrong_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main.main([]) == 2
    assert "usage: lerobot-craft" in capsys.readouterr().out


def test_only_subcommands_that_exist_are_listed() -> None:
    assert "train" in _main.available()
    assert set(_main.available()) <= set(_main.SUBCOMMANDS)


@pytest.mark.parametrize(("error", "code"), [(UsageError("type this"), 2), (RunError("it broke"), 1)])
def test_our_errors_become_messages(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Module:
        @staticmethod
        def main(_: list[str]) -> int:
            raise error

    monkeypatch.setattr(_main.importlib, "import_module", lambda _: Module)
    assert _main.main(["train"]) == code
    assert capsys.readouterr().err == f"error: {error}\n"


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def main(_: list[str]) -> int:
            raise KeyError("a bug")

    monkeypatch.setattr(_main.importlib, "import_module", lambda _: Module)
    with pytest.raises(KeyError):
        _main.main(["train"])
