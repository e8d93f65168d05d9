"""Random batches and small helpers that every loss test shares."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def digits() -> torch.Tensor:
    return torch.arange(10, dtype=torch.float64)


@pytest.fixture
def batch():
    """Sixty positions: logits of spread 2 around levels between -6 and 20, targets, and masses below one."""
    generator = torch.Generator().manual_seed(20260)
    logits = 2.0 * torch.randn(60, 10, generator=generator, dtype=torch.float64)
    logits += torch.linspace(-6.0, 20.0, 60, dtype=torch.float64)[:, None]
    classes = torch.arange(60) % 10
    log_mass = -3.0 * torch.rand(60, generator=generator, dtype=torch.float64)
    return logits, classes, log_mass
