# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft eval --env.type=…`: ours are checked here, LeRobot's by its own parser."""

import contextlib
import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import draccus
import yaml
from draccus.utils import DecodingError, ParsingError
from lerobot.configs.default import EvalConfig
from lerobot.envs.configs import EnvConfig

# Imported for its registration of `metaworld_state`.
import lerobot_craft.evaluation._environment  # noqa: F401
from lerobot_craft.cli._arguments import given
from lerobot_craft.errors import SettingsError, UsageError
from lerobot_craft.training._compat import parser, register_third_party_plugins
from lerobot_craft.training._quiet import quiet_decoder

DISCOVER = "env.discover_packages_path"


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """Which checkpoints to try in which environment.

    Attributes:
        checkpoints: Folders or Hub repositories; the first is the teacher where there are several.
        env: LeRobot's settings of the environment.
        eval: LeRobot's settings of the evaluation: episodes per task, environments side by side.
        old_tasks: Tasks, or groups of them, that the teacher knew.
        new_tasks: Tasks, or groups of them, that were taught.
        sequence: Whether the checkpoints are stages that follow each other, each of which was taught one of
            `new_tasks`, in their order; otherwise each is a student of the first, taught all of `new_tasks`.
        seed: Of the first episode; the next one's is one higher. The same for every checkpoint and task.
        videos: Episodes per checkpoint and task that are filmed.
        output_dir: Where results and videos go. Finished parts found there are not run again.
        device: Where to run the policies; None is each checkpoint's own choice.
        rename_map: From names of the environment's observations to those the policies know, as in LeRobot.
    """

    checkpoints: tuple[str, ...]
    env: EnvConfig
    eval: EvalConfig
    old_tasks: tuple[str, ...] = ()
    new_tasks: tuple[str, ...] = ()
    sequence: bool = False
    seed: int = 1000
    videos: int = 0
    output_dir: Path = Path("outputs/eval")
    device: str | None = None
    rename_map: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [
            f"`--policy.paths` names `{path}`, where there is no `config.json`: expected a checkpoint's folder, such "
            "as `RUN/checkpoints/last/pretrained_model`, or a Hub repository."
            for path in self.checkpoints
            if _is_local(path) and not (Path(path) / "config.json").is_file()
        ]
        if not self.checkpoints:
            problems.append("`--policy.paths` names no checkpoint: expected one or more, as in `--policy.paths=[A,B]`.")
        if len(set(self.checkpoints)) < len(self.checkpoints):
            problems.append(f"`--policy.paths` names a checkpoint twice: got {', '.join(self.checkpoints)}.")
        if self.eval.n_episodes < 1:
            problems.append(f"`--eval.n_episodes={self.eval.n_episodes}`: expected 1 or more.")
        elif self.eval.batch_size < 1:
            problems.append(f"`--eval.batch_size={self.eval.batch_size}`: expected 1 or more, or 0 to have it chosen.")
        if self.seed < 0:
            problems.append(f"`--seed={self.seed}`: expected 0 or more.")
        if self.videos < 0:
            problems.append(f"`--videos={self.videos}`: expected 0 or more episodes to film.")
        if both := set(self.old_tasks) & set(self.new_tasks):
            problems.append(f"`{'`, `'.join(sorted(both))}` is in `--old_tasks` and in `--new_tasks`: leave it in one.")
        if self.sequence and len(self.new_tasks) != len(self.checkpoints) - 1:
            problems.append(
                f"`--sequence` needs one of `--new_tasks` for each checkpoint after the teacher: got "
                f"{len(self.new_tasks)} for {len(self.checkpoints)} checkpoints."
            )
        if problems:
            raise SettingsError(problems)


@dataclass
class _Theirs:
    env: EnvConfig
    eval: EvalConfig = field(default_factory=EvalConfig)
    rename_map: dict[str, str] = field(default_factory=dict)


def parse_environment(words: Sequence[str]) -> tuple[EnvConfig, EvalConfig, dict[str, str]]:
    """Return what LeRobot's parser makes of normalized `--env.*`, `--eval.*` and `--rename_map`.

    Raises:
        UsageError: If it makes nothing of them.
    """
    quiet_decoder()
    register_third_party_plugins()
    rest = list(words)
    for name, path in parser.parse_plugin_args(parser.PLUGIN_DISCOVERY_SUFFIX, rest).items():
        try:
            parser.load_plugin(path)
        except parser.PluginLoadError as error:
            raise UsageError(f"`--{name}={path}` could not be imported: {error}") from error
        rest = parser.filter_arg(name, rest)
    _check_type(given(rest, "env.type"))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            theirs = draccus.parse(_Theirs, args=rest)
    except SystemExit as stop:
        # argparse has printed its usage, which is a page of flags; the reason is its last line.
        reason = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        raise UsageError(f"{reason}: expected flags of this environment; see `lerobot-craft eval --help`.") from stop
    except (DecodingError, ParsingError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"`{' '.join(rest)}` could not be read: {' '.join(str(error).split())}") from error
    return theirs.env, theirs.eval, theirs.rename_map


def _check_type(name: str | None) -> None:
    known = sorted(EnvConfig.get_known_choices())
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}."
        raise UsageError(
            f"`--env.type={name}` is no environment that LeRobot knows here: {hint} One from a package of yours needs "
            f"`--{DISCOVER}=PACKAGE`."
        )


def _is_local(path: str) -> bool:
    # `owner/name` may be on the Hub; anything else can only be a folder.
    return Path(path).exists() or path.count("/") != 1 or path.startswith((".", "/", "~"))
