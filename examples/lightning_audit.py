"""Lightning: the audit as a callback, whose report is written when training ends.

    pip install lightning
    python examples/lightning_audit.py report.html

prints

    4 steps, 4 of them compared
    in the first step head.weight, head.bias differ
    because of clamp in training_step
"""

import logging
import sys
import warnings

import lightning
import torch
from torch import nn

import subgrad


class Clipped(lightning.LightningModule):
    """Its outputs are clipped to [0, 1], and its last layer starts at 0: all of them on the bound."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 16), nn.Linear(16, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def training_step(self, batch, _):
        inputs, targets = batch
        return nn.functional.mse_loss(self.head(self.body(inputs).relu()).clamp(0, 1), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.rand(32, 1))
    report = sys.argv[1] if len(sys.argv) > 1 else None
    callback = subgrad.loggers.lightning(html=report, compare=("torch-2.13", "torch-2.14"), every=1, compare_every=1)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Clipped(), torch.utils.data.DataLoader(data, batch_size=8))

    audit = callback.audit
    print(f"{audit.steps} steps, {len(audit.effects)} of them compared")
    first = audit.effects[0]
    print("in the first step", ", ".join(change.parameter for change in first.changes if change.differ), "differ")
    print("because of", first.causes[0].operator, "in", first.causes[0].site.function)


if __name__ == "__main__":
    main()
