"""How the tests call a loss of the package, whichever kind it is."""

from __future__ import annotations

import torch

from numsft.losses import NUMBER_LOSSES, TOKEN_LOSSES

DIGIT_UNIT = sorted(name for name, loss in NUMBER_LOSSES.items() if loss.unit == "digit")
NUMBER_UNIT = sorted(name for name, loss in NUMBER_LOSSES.items() if loss.unit == "number")
TOKEN = sorted(TOKEN_LOSSES)


def with_defaults(tables, names):
    """The option sets of the table for these names; the defaults of a loss that the table does not know."""
    rows = [(name, options) for name, options in tables if name in names]
    return rows + [(name, {}) for name in names if name not in {row[0] for row in rows}]


def number_loss(name, options, logits, classes, values, log_mass=None):
    """Call a digit-unit loss, giving `log_mass` only where it is asked for."""
    loss = NUMBER_LOSSES[name](**options)
    if not loss.needs_log_mass:
        return loss(logits, classes, values)
    if log_mass is None:
        log_mass = torch.zeros(len(classes), dtype=logits.dtype)
    return loss(logits, classes, values, log_mass=log_mass)


def any_number_loss(name, options, logits, classes, values):
    """Call a loss of either unit; for the number unit every two positions are one number of two digits."""
    if NUMBER_LOSSES[name].unit == "digit":
        return number_loss(name, options, logits, classes, values)
    index = torch.arange(len(classes))
    generator = torch.Generator().manual_seed(0)
    return NUMBER_LOSSES[name](**options)(
        logits, classes, values, places=1 - index % 2, numbers=index // 2, generator=generator
    )


def one_position(name, options, z, g, log_mass=0.0):
    """Loss and gradient of a digit-unit loss at one position of the ten digits, in float64."""
    logits = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    mass = torch.tensor([log_mass], dtype=torch.float64)
    values = torch.arange(10, dtype=torch.float64)
    loss = number_loss(name, options, logits, torch.tensor([g]), values, mass)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    return loss.item(), gradient[0]
