# SPDX-License-Identifier: Apache-2.0
import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def deterministic() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
