"""The clipped objective of PPO, at its first step: every ratio is exactly 1, and every entry on a kink.

min(r A, clip(r, 1 - e, 1 + e) A) ties wherever the ratio r is inside. In the first epoch all are, and no convention
changes the gradient, since both sides move alike. Where the clip range is annealed to 0, as some schedules do, the
ratio lies on the bound itself, and the size of the last update depends on the version of torch.

    python examples/ppo_clip.py

prints

    clip range 0.2
      clamp  self == max      0 of 64 entries
      clamp  self == min      0 of 64 entries
      minimum self == other    64 of 64 entries
      torch 2.13 to 2.14 changes 0 of 4 gradients, by 0%
    clip range 0.0
      clamp  self == max      64 of 64 entries
      minimum self == other    64 of 64 entries
      torch 2.13 to 2.14 changes 4 of 4 gradients, by 50%
"""

import torch
from torch import nn

import subgrad


def objective(policy: nn.Module, states, actions, advantages, old, clip: float) -> torch.Tensor:
    chosen = torch.log_softmax(policy(states), -1).gather(1, actions)
    ratio = torch.exp(chosen - old)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def main() -> None:
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    states, actions, advantages = torch.randn(64, 6), torch.randint(0, 3, (64, 1)), torch.randn(64, 1)
    old = torch.log_softmax(policy(states), -1).gather(1, actions).detach()

    for clip in (0.2, 0.0):
        with subgrad.audit(policy, compare=("torch-2.13", "torch-2.14"), every=1) as audit:
            objective(policy, states, actions, advantages, old, clip).backward()
        print(f"clip range {clip}")
        for row in sorted(audit.rows, key=lambda row: (row.operator, row.kink)):
            print(f"  {row.operator:6} {row.kink:16} {row.total.hits} of {row.total.entries} entries")
        effect = audit.effects[0]
        changed = sum(change.differ > 0 for change in effect.changes)
        print(
            f"  torch 2.13 to 2.14 changes {changed} of {len(effect.changes)} gradients, by {effect.relative or 0:.0%}"
        )


if __name__ == "__main__":
    main()
