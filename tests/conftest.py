# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several folders of tests share; each is made once a session."""

import os

# Before anything imports LeRobot: tests are offline, and one thread is deterministic and faster on a busy machine.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

from pathlib import Path

import pytest
from tests._problem import Problem, make_problem


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """An old dataset, a new one, and an ACT teacher trained on the old."""
    return make_problem(tmp_path_factory.mktemp("problem"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for outputs of runs that several tests look at."""
    return tmp_path_factory.mktemp("runs")
