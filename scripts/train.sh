#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A full training run: anchors from the old data first, then fine-tuning under the `craft` preset.
#   scripts/train.sh TEACHER OLD_DATA NEW_DATA OUTPUT [any flag of `lerobot-craft train`]
set -euo pipefail
if [ "$#" -lt 4 ]; then
  sed -n '3,4p' "$0" >&2
  exit 2
fi
teacher="$1" old="$2" new="$3" output="$4"
shift 4
lerobot-craft cache --policy.path="$teacher" --dataset.repo_id="$old" --output_dir="$output-anchors" \
  --kinds=action --num_anchors=200 --selection=k_center
lerobot-craft train --policy.path="$teacher" --dataset.repo_id="$new" --output_dir="$output" \
  --craft.preset=craft --craft.anchor_cache_dir="$output-anchors" "$@"
