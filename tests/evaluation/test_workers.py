# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from lerobot_craft.errors import RunError
from lerobot_craft.evaluation import _workers
from lerobot_craft.evaluation._workers import spread


@pytest.mark.parametrize("count", [1, 2])
def test_outcomes_come_in_order_and_work_sees_this_process(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(_workers, "worker_count", lambda: count)
    here, unpicklable = os.getpid(), (lambda number: 10 * number)
    outcomes = list(spread(lambda number: (unpicklable(number), os.getpid()), [3, 1, 2]))
    assert [value for value, _ in outcomes] == [30, 10, 20]
    assert all((process == here) == (count == 1) for _, process in outcomes)


def test_an_error_in_a_worker_is_an_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "worker_count", lambda: 2)

    def fail(number: int) -> None:
        raise RunError(f"no {number}")

    with pytest.raises(RunError, match="no 1"):
        list(spread(fail, [1, 2]))
