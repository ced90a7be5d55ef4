# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests._asserts import assert_lambda_in_range

from lerobot_craft.dual import LambdaController, Multiplier
from lerobot_craft.errors import StateError

NO = torch.tensor(False)
YES = torch.tensor(True)


def feed(multiplier: Multiplier, violations: list[float]) -> list[float]:
    seen = []
    for violation in violations:
        multiplier.update_(torch.tensor(violation, dtype=torch.float64), hold=NO, no_growth=NO)
        seen.append(multiplier.value.item())
    return seen


@given(
    controller=st.sampled_from(LambdaController),
    violations=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    initial=st.floats(0.0, 10.0),
    lr=st.floats(0.0, 100.0),
    kp=st.floats(0.0, 100.0),
    averaging=st.floats(0.0, 0.999),
)
def test_lambda_never_leaves_its_range(
    controller: LambdaController, violations: list[float], initial: float, lr: float, kp: float, averaging: float
) -> None:
    multiplier = Multiplier(controller, initial=initial, lr=lr, maximum=10.0, kp=kp, averaging=averaging)
    for value in feed(multiplier, violations):
        assert_lambda_in_range(value, 10.0)


def test_dual_ascent_is_g4() -> None:
    multiplier = Multiplier(LambdaController.DUAL, initial=1.0, lr=0.01, maximum=1.03)
    assert feed(multiplier, [2.0, -5.0, 9.0]) == pytest.approx([1.02, 0.97, 1.03])


def test_fixed_does_not_move() -> None:
    assert feed(Multiplier(LambdaController.FIXED, initial=3.0), [5.0, -5.0]) == [3.0, 3.0]


def test_pi_is_nupi_in_incremental_form() -> None:
    """λ_{t+1} = λ_0 + ki·Σe + kp·(ξ_t − ξ_0), as long as nothing is clipped."""
    violations = [0.5, -0.2, 0.8, 0.1, -0.3]
    kp, ki, nu = 2.0, 0.3, 0.7
    seen = feed(Multiplier(LambdaController.PI, initial=5.0, lr=ki, kp=kp, averaging=nu, maximum=100.0), violations)
    average, total, expected = violations[0], 0.0, []
    for violation in violations:
        average = nu * average + (1 - nu) * violation
        total += violation
        expected.append(5.0 + ki * total + kp * (average - violations[0]))
    assert seen == pytest.approx(expected, rel=1e-12)


def test_pi_is_coopers_nupi_step_by_step() -> None:
    """Against cooper's own optimizer, maximising as it does for λ.

    The first violation is 0 and cooper's average starts at 0, so that both averages start at the first violation.
    (cooper 1.0.1 documents the same start for `nuPIInitType.SGD` and then starts from 0 after the first step.)
    """
    from cooper.optim import nuPI, nuPIInitType

    violations = [0.0, 0.5, -0.2, 0.8, 0.1, -0.3, 0.9]
    theirs = torch.nn.Parameter(torch.tensor([5.0], dtype=torch.float64))
    optimizer = nuPI(
        [theirs],
        lr=0.3,
        Kp=torch.tensor([2.0 / 0.3], dtype=torch.float64),
        Ki=torch.tensor([1.0], dtype=torch.float64),
        ema_nu=0.7,
        init_type=nuPIInitType.ZEROS,
        maximize=True,
    )
    ours = Multiplier(LambdaController.PI, initial=5.0, lr=0.3, kp=2.0, averaging=0.7, maximum=100.0)
    for violation in violations:
        theirs.grad = torch.tensor([violation], dtype=torch.float64)
        optimizer.step()
        ours.update_(torch.tensor(violation, dtype=torch.float64), hold=NO, no_growth=NO)
        assert ours.value.item() == pytest.approx(theirs.item(), rel=1e-12)


def test_averaging_shields_dual_ascent_from_one_outlier() -> None:
    plain = Multiplier(LambdaController.DUAL, lr=0.1, maximum=100.0)
    averaged = Multiplier(LambdaController.DUAL, lr=0.1, maximum=100.0, averaging=0.9)
    assert feed(plain, [0.0, 10.0])[-1] == pytest.approx(2.0)
    assert feed(averaged, [0.0, 10.0])[-1] == pytest.approx(1.1)


def test_hold_keeps_everything() -> None:
    multiplier = Multiplier(LambdaController.PI, kp=1.0, averaging=0.5)
    feed(multiplier, [0.3])
    before = multiplier.state_dict()
    multiplier.update_(torch.tensor(torch.nan), hold=YES, no_growth=NO)
    assert multiplier.state_dict() == before


def test_no_growth_lets_lambda_fall_only() -> None:
    multiplier = Multiplier(LambdaController.DUAL, lr=1.0)
    multiplier.update_(torch.tensor(2.0), hold=NO, no_growth=YES)
    assert multiplier.value.item() == 1.0
    multiplier.update_(torch.tensor(-0.5), hold=NO, no_growth=YES)
    assert multiplier.value.item() == 0.5


def test_state_of_another_controller_or_range_is_refused() -> None:
    state = Multiplier(LambdaController.DUAL, initial=9.0).state_dict()
    with pytest.raises(StateError, match=r"`lambda_controller=dual`.*`pi`"):
        Multiplier(LambdaController.PI).load_state_dict(state)
    with pytest.raises(StateError, match=r"saved λ is 9\.0, outside \[0, 5\.0\]"):
        Multiplier(LambdaController.DUAL, maximum=5.0).load_state_dict(state)
