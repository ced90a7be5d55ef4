# SPDX-License-Identifier: Apache-2.0
"""The anchor cache: what a frozen teacher said about a few frames, on disk. It knows no policy."""

from lerobot_craft.anchors._batches import AnchorBatches
from lerobot_craft.anchors._builder import FrameSource, Label, build_cache, random_access
from lerobot_craft.anchors._columns import Column, Frame, Frames
from lerobot_craft.anchors._compatibility import build_command, check_compatible, check_mode
from lerobot_craft.anchors._convert import convert_legacy
from lerobot_craft.anchors._fingerprint import Json, canonical_json, fingerprint
from lerobot_craft.anchors._kinds import MODE_KINDS, REQUIRED_TARGET
from lerobot_craft.anchors._legacy import LegacyCache, open_cache
from lerobot_craft.anchors._manifest import SCHEMA_VERSION, Manifest, Shard
from lerobot_craft.anchors._plan import CachePlan
from lerobot_craft.anchors._reader import AnchorBatch, AnchorCache, AnchorSource, Split
from lerobot_craft.anchors._seeds import derive_seed, seeded, shuffled
from lerobot_craft.anchors._selection import select_k_center, select_random, select_spread
from lerobot_craft.anchors._statistics import TargetStatistics
from lerobot_craft.anchors._writer import CacheWriter

__all__ = [
    "MODE_KINDS",
    "REQUIRED_TARGET",
    "SCHEMA_VERSION",
    "AnchorBatch",
    "AnchorBatches",
    "AnchorCache",
    "AnchorSource",
    "CachePlan",
    "CacheWriter",
    "Column",
    "Frame",
    "FrameSource",
    "Frames",
    "Json",
    "Label",
    "LegacyCache",
    "Manifest",
    "Shard",
    "Split",
    "TargetStatistics",
    "build_cache",
    "build_command",
    "canonical_json",
    "check_compatible",
    "check_mode",
    "convert_legacy",
    "derive_seed",
    "fingerprint",
    "open_cache",
    "random_access",
    "seeded",
    "select_k_center",
    "select_random",
    "select_spread",
    "shuffled",
]
