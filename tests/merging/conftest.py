# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from tests._state_policy import write_state_policy


@pytest.fixture
def metaworld_policy(tmp_path: Path) -> Path:
    """An untrained policy that reads Meta-World states."""
    return write_state_policy(tmp_path / "metaworld", [0.0, 0.0, 0.0, 0.0])
