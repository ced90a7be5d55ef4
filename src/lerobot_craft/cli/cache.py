# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft cache`: builds, shows or converts an anchor cache; parses, hands over, returns the exit code."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from lerobot_craft.caching._settings import DTYPES, IMAGE_FORMATS, KINDS, POOLINGS, SELECTIONS, CacheSettings
from lerobot_craft.cli._arguments import normalize
from lerobot_craft.cli._parser import comma_separated, make_parser
from lerobot_craft.errors import UsageError

EXAMPLES = """\
examples:
  lerobot-craft cache --policy.path=TEACHER --dataset.repo_id=OLD_DATA --output_dir=CACHE --num_anchors=200
  lerobot-craft cache --policy.path=TEACHER --dataset.repo_id=OLD_DATA --output_dir=CACHE --layers_to_save=-2,-1
  lerobot-craft cache --policy.path=TEACHER --dataset.repo_id=NEW_DATA --output_dir=CACHE --prompts_file=OLD_PROMPTS
  lerobot-craft cache --inspect=CACHE
  lerobot-craft cache --convert=OLDER_CACHE --output_dir=CACHE
"""


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `cache`.

    Returns:
        The exit code.
    """
    given = parser().parse_args(normalize(arguments))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if "inspect" in given:
        return _inspect(given)
    _require(given, {"output_dir": "--output_dir"})
    if "convert" in given:
        return _convert(given)
    _require(given, {"policy_path": "--policy.path", "repo_id": "--dataset.repo_id"})
    others = ("inspect", "contact_sheet", "convert")
    settings = CacheSettings(**{name: value for name, value in vars(given).items() if name not in others})
    from lerobot_craft.caching._inspect import describe
    from lerobot_craft.caching._run import build

    sys.stdout.write(describe(build(settings)))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the subcommand; both spellings of the older tools' flags are known to it."""
    made = make_parser(
        "cache",
        "Run the frozen teacher once over some frames and keep what it says: training needs no teacher.",
        EXAMPLES,
    )
    _add_sources(made)
    _add_targets(made)
    _add_work(made)
    other = made.add_argument_group("instead of building")
    other.add_argument(
        "--inspect", metavar="CACHE", type=Path, help="print what a cache holds, with a sheet of its images"
    )
    other.add_argument(
        "--contact_sheet", metavar="PNG", type=Path, help="where to put the sheet (contact_sheet.png in CACHE)"
    )
    other.add_argument(
        "--convert", metavar="OLDER", type=Path, help="write a cache of the older tools in the new format"
    )
    return made


def _add_sources(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("from what, to where")
    group.add_argument(
        "--policy.path",
        "--policy.pretrained_path",
        dest="policy_path",
        metavar="P",
        help="the teacher: a folder or a Hub id",
    )
    group.add_argument("--dataset.repo_id", dest="repo_id", metavar="D", help="where the anchors come from")
    group.add_argument(
        "--dataset.root", dest="root", metavar="DIR", type=Path, help="its folder, where it is a local one"
    )
    group.add_argument(
        "--dataset.episodes", dest="episodes", metavar="[0,1]", type=_episodes, help="only these episodes"
    )
    group.add_argument("--dataset.revision", dest="revision", metavar="R", help="branch, tag or commit on the Hub")
    group.add_argument(
        "--output_dir", "--out_dir", dest="output_dir", metavar="C", type=Path, help="the cache's folder"
    )
    group.add_argument(
        "--prompts_file", metavar="FILE", type=Path, help="instructions that replace the dataset's, one a line"
    )
    _add_switch(group, "--overwrite", "replace a cache that is there, once the new one is whole")


def _add_targets(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("what to keep")
    group.add_argument(
        "--num_anchors", "--num_samples", dest="num_anchors", metavar="N", type=int, help="anchors (200)"
    )
    group.add_argument(
        "--kinds", metavar="K,K", type=comma_separated, help=f"some of {', '.join(KINDS)} (hidden,action)"
    )
    group.add_argument("--layers_to_save", metavar="L,L", type=_integers, help="layers of the hidden states (-2,-1)")
    group.add_argument("--hidden_layer", metavar="L", type=int, help="keep one pooled vector of this layer instead")
    group.add_argument("--tap", metavar="PATH", help="a module path such as model.encoder.layers.2, for any policy")
    group.add_argument("--pooling", metavar="NAME", help=f"one of {', '.join(POOLINGS)}")
    group.add_argument("--top_k", metavar="K", type=int, help="logits to keep per teacher token (0)")
    group.add_argument("--selection", metavar="NAME", help=f"one of {', '.join(SELECTIONS)} (spread)")
    group.add_argument("--dtype", metavar="NAME", help=f"of hidden targets: {', '.join(DTYPES)} (float16)")
    group.add_argument("--image_format", metavar="NAME", help=f"{' or '.join(IMAGE_FORMATS)} (jpeg)")


def _add_work(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("how to work")
    group.add_argument(
        "--device", "--policy.device", dest="device", metavar="NAME", help="cpu, cuda, … (the checkpoint's)"
    )
    group.add_argument("--batch_size", metavar="N", type=int, help="frames per forward of the teacher (16)")
    group.add_argument("--num_workers", metavar="N", type=int, help="processes that read the dataset ahead (0)")
    _add_switch(group, "--autocast", "run the teacher in bfloat16 mixed precision")
    group.add_argument("--shard_size", metavar="N", type=int, help="anchors per file (100)")
    group.add_argument("--seed", metavar="N", type=int, help="of the selection and the teacher's noise (42)")


def _add_switch(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    group.add_argument(name, metavar="BOOL", type=_boolean, nargs="?", const=True, help=text)


def _boolean(word: str) -> bool:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    raise argparse.ArgumentTypeError(f"got {word!r}, expected true or false")


def _integers(word: str) -> tuple[int, ...]:
    return tuple(int(part) for part in word.strip("[]()").split(",") if part.strip())


def _episodes(word: str) -> tuple[int, ...] | None:
    return None if word == "null" else tuple(json.loads(word if word.startswith("[") else f"[{word}]"))


def _require(given: argparse.Namespace, names: dict[str, str]) -> None:
    if missing := [flag for name, flag in names.items() if name not in given]:
        raise UsageError(
            f"{' and '.join(f'`{flag}`' for flag in missing)} must be given: see `lerobot-craft cache --help`."
        )


def _inspect(given: argparse.Namespace) -> int:
    from lerobot_craft.anchors import open_cache
    from lerobot_craft.caching._inspect import contact_sheet, describe

    cache = open_cache(given.inspect)
    sys.stdout.write(describe(cache))
    sheet = given.contact_sheet if "contact_sheet" in given else given.inspect / "contact_sheet.png"
    count = contact_sheet(cache, sheet)
    sys.stdout.write(f"Contact sheet  {sheet}, {count} images\n" if count else "Contact sheet  none: no images\n")
    return 0


def _convert(given: argparse.Namespace) -> int:
    from lerobot_craft.anchors import convert_legacy
    from lerobot_craft.caching._inspect import describe

    options = {name: value for name, value in vars(given).items() if name in ("shard_size", "overwrite")}
    sys.stdout.write(describe(convert_legacy(given.convert, given.output_dir, **options)))
    return 0
