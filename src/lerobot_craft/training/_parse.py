# SPDX-License-Identifier: Apache-2.0
"""Command-line words into a validated `CraftTrainConfig`; starts nothing.

LeRobot's `validate()` reads `--policy.path` and `--config_path` from `sys.argv` again, so the words are installed
there for the time of the parse. What its parser found in a settings file it keeps for the life of the process; here
it is forgotten afterwards, so that one command's file does not reach into the next command.
"""

import contextlib
import dataclasses
import difflib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from draccus.utils import DecodingError, ParsingError
from lerobot.configs.policies import PreTrainedConfig

from lerobot_craft.cli._arguments import given, names_given, normalize
from lerobot_craft.errors import CraftError, SettingsError, UsageError
from lerobot_craft.policies import import_support, import_support_for
from lerobot_craft.presets import find_preset
from lerobot_craft.training._compat import (
    TRAIN_CONFIG_NAME,
    JobConfig,
    parser,
    parser_memory,
    register_third_party_plugins,
)
from lerobot_craft.training._config import CRAFT_CONFIG_NAME, CraftConfig, CraftTrainConfig, RetentionMode
from lerobot_craft.training._data import NOT_FOUND
from lerobot_craft.training._quiet import quiet_decoder

DRY_RUN = {
    "steps": "3",
    "batch_size": "2",
    "log_freq": "1",
    "num_workers": "0",
    "env_eval_freq": "0",
    "eval_steps": "0",
    "save_checkpoint": "true",
    "save_checkpoint_to_hub": "false",
    "wandb.enable": "false",
    "policy.push_to_hub": "false",
    "craft.anchor_batch_size": "2",
    "craft.retention_freq": "1",
    "craft.num_anchors": "8",
}


# Modes that are the policy's own loss on anchors: what serves one of them serves the others.
_OWN_LOSS = {RetentionMode.ACTION, RetentionMode.TOKEN_CE, RetentionMode.REPLAY}


def parse(arguments: Sequence[str]) -> CraftTrainConfig:
    """Return the validated settings that `arguments` ask for.

    Args:
        arguments: The words after `lerobot-craft train`, in any accepted spelling.

    Raises:
        UsageError: If the words cannot be understood or cannot work together.
        SettingsError: If settings of the group `craft` cannot work, with all of them named.
    """
    quiet_decoder()
    words = complete(normalize(arguments))
    register_third_party_plugins()
    _register_small_variants(words)
    with _installed(words):
        try:
            config: CraftTrainConfig = _from_command_line()
            config.validate()
        except CraftError:
            raise
        except (DecodingError, ParsingError) as error:
            raise _explained(error) from error
        # What LeRobot's own validation raises is about the command as typed.
        except (ValueError, FileExistsError, FileNotFoundError, NotImplementedError) as error:
            raise UsageError(str(error)) from error
    _check(config)
    return config


@parser.wrap()
def _from_command_line(config: CraftTrainConfig) -> CraftTrainConfig:
    return config


def complete(words: list[str]) -> list[str]:
    """Return normalized `words` with what they imply: a preset's settings, a dry run's, no push without a name.

    Raises:
        UsageError: If a name in the group `craft` does not exist.
    """
    explicit = names_given(words, "craft")
    _check_names(explicit)
    in_file = _settings_in_file(given(words, "config_path"))
    implied: list[str] = []
    name = given(words, "craft.preset") or (None if "resumed" in in_file else in_file.get("preset"))
    if name is not None:
        taken = explicit | set(in_file)
        chosen = find_preset(name, _policy_type(words))
        asked = given(words, "craft.retention_mode") or in_file.get("retention_mode")
        if asked is not None and not {asked, chosen.retention_mode} <= _OWN_LOSS:
            # What a preset is for one type of policy goes with what it retains there.
            chosen = find_preset(name)
        mode = {"retention_mode": chosen.retention_mode or RetentionMode.NONE}
        settings = {**mode, **chosen.settings, **chosen.training}
        implied = [f"--craft.{key}={_word(value)}" for key, value in settings.items() if key not in taken]
    if given(words, "policy.path") is not None and _pushes_nowhere(words):
        # LeRobot's policies push to the Hub unless told otherwise and then refuse to start without a name there.
        implied.append("--policy.push_to_hub=false")
    words = implied + words
    if given(words, "craft.dry_run") in ("true", "True"):
        words += [f"--{key}={value}" for key, value in DRY_RUN.items()]
        words.append(f"--output_dir={tempfile.mkdtemp(prefix='lerobot-craft-dry-run-')}/run")
    return words


def _policy_type(words: list[str]) -> str | None:
    """Return the type of the policy that is to be trained, None where nothing says."""
    path = given(words, "policy.path")
    if path is None:
        return given(words, "policy.type")
    import_support_for(path)
    try:
        kind: str = PreTrainedConfig.from_pretrained(path).type
    except NOT_FOUND:
        # That it is not there is said where it is loaded.
        return None
    return kind


def _pushes_nowhere(words: list[str]) -> bool:
    off = given(words, "craft.enabled") in ("false", "False")
    return not off and given(words, "policy.repo_id") is None and given(words, "policy.push_to_hub") is None


def _check_names(names: set[str]) -> None:
    known = [f.name for f in dataclasses.fields(CraftConfig)]
    problems = []
    for name in sorted(names - set(known)):
        near = difflib.get_close_matches(name, known, n=3)
        hint = (
            f"did you mean {' or '.join(f'`--craft.{n}`' for n in near)}?"
            if near
            else "see `lerobot-craft train --help`."
        )
        problems.append(f"`--craft.{name}` is no setting: {hint}")
    if problems:
        raise SettingsError(problems)


def _settings_in_file(config_path: str | None) -> dict[str, Any]:
    if config_path is None:
        return {}
    path = Path(config_path)
    ours = (path if path.is_dir() else path.parent) / CRAFT_CONFIG_NAME
    if ours.is_file():
        # A checkpoint's settings are resolved already: the preset has done its work.
        return {"resumed": True, **json.loads(ours.read_text())["craft"]}
    if not path.is_file():
        return {}
    settings = yaml.safe_load(path.read_text())
    group = settings.get("craft", {}) if isinstance(settings, dict) else {}
    return dict(group)


def _word(value: object) -> str:
    return (
        {True: "true", False: "false", None: "null"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )


def _register_small_variants(words: list[str]) -> None:
    """Import our test-support package where a checkpoint names one of its small policy types."""
    for name, key in (("policy.path", None), ("config_path", "policy")):
        given_path = given(words, name)
        if given_path is None:
            continue
        folder = Path(given_path) if Path(given_path).is_dir() else Path(given_path).parent
        path = folder / ("config.json" if key is None else TRAIN_CONFIG_NAME)
        if not path.is_file():
            continue
        settings = json.loads(path.read_text())
        policy = settings if key is None else settings.get(key) or {}
        import_support(policy)


@contextlib.contextmanager
def _installed(words: list[str]) -> Iterator[None]:
    saved = sys.argv
    sys.argv = ["lerobot-craft train", *words]
    try:
        yield
    finally:
        sys.argv = saved
        for kept in parser_memory():
            kept.clear()


def _explained(error: Exception) -> CraftError:
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and isinstance(cause, Exception):
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, CraftError):
            return cause
    return UsageError(": ".join(dict.fromkeys(str(cause) for cause in causes)))


def _check(config: CraftTrainConfig) -> None:
    problems = []
    if JobConfig.is_remote_target(config.job.target):
        problems.append(
            f"`--job.target={config.job.target}`: this command runs on this machine only. Leave the flag out, and "
            "start it on the remote machine itself."
        )
    if config.reward_model is not None:
        problems.append("`--reward_model`: only policies are trained here. Use `lerobot-train` for reward models.")
    craft = config.craft
    if craft.enabled and config.policy is not None and config.policy.pretrained_path is None:
        problems.append(
            "`--policy.type` starts from random weights, which hold nothing to retain: pass `--policy.path=TEACHER`, "
            "or `--craft.enabled=false` for plain training."
        )
    if craft.enabled and craft.mode.needs_anchors and craft.anchor_cache_dir is None and craft.anchor_repo_id is None:
        problems.append(
            f"`--craft.retention_mode={craft.retention_mode}` needs anchors and none were named: pass "
            "`--craft.anchor_cache_dir=CACHE` (built by `lerobot-craft cache`), or "
            "`--craft.anchor_repo_id=OLD_DATASET` to have it built first, or `--craft.enabled=false` for plain "
            "training."
        )
    if problems:
        raise SettingsError(problems)
