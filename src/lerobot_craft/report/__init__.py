# SPDX-License-Identifier: Apache-2.0
"""One self-contained HTML page from runs, demos, comparisons and drift measurements; trains and evaluates nothing."""

from lerobot_craft.report._write import write_card, write_report

__all__ = ["write_card", "write_report"]
