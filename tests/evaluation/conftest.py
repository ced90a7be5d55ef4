# SPDX-License-Identifier: Apache-2.0
"""Untrained policies that read Meta-World states."""

from pathlib import Path

import pytest
from tests._state_policy import write_state_policy


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stays where it is, more or less."""
    return write_state_policy(tmp_path_factory.mktemp("policy"), [0.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="session")
def forward_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moves forward to the left, and so presses the coffee machine's button from some starts."""
    return write_state_policy(tmp_path_factory.mktemp("policy"), [-0.5, 1.0, 0.0, 0.0])
