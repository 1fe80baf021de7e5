"""The loggers people use, the real ones, are told what every recorded step met."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import subgrad


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    return model


def train(model: nn.Module, steps: int, listeners: list[Any]) -> subgrad.audit.Session:  # type: ignore[name-defined]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with subgrad.audit(model, every=2, listeners=listeners) as audit:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
    return audit


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        train(network(), 4, [subgrad.loggers.tensorboard(writer)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(each.step, each.value) for each in events.Scalars("subgrad/hits")] == [(0, 12.0), (2, 12.0)]
    assert [each.value for each in events.Scalars("subgrad/hits/1")] == [12.0, 12.0]
    assert [each.value for each in events.Scalars("subgrad/share")] == [1.0, 1.0]


def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(RuntimeError, match="No run of wandb has begun"):
        train(network(), 1, [subgrad.loggers.wandb()])
    run = wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(console="off"))
    try:
        train(network(), 3, [subgrad.loggers.wandb()])
        run.log({"loss": 1.0})
        assert (run.summary["subgrad/hits"], run.summary["subgrad/step"]) == (12.0, 2)
    finally:
        run.finish()


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            if fails and index == 1:
                raise ValueError("mine")
            return self.net(batch[0]).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for fails in (False, True):
        callback = subgrad.loggers.lightning(every=2, html=tmp_path / "report.html")
        logger = CSVLogger(tmp_path, name=str(fails))
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", callbacks=[callback], logger=logger, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
        )  # fmt: skip
        data = DataLoader(TensorDataset(torch.ones(12, 2)), batch_size=4)
        if fails:
            with pytest.raises(ValueError, match="mine"):
                trainer.fit(Module(), data)
            assert callback.audit.hits == 12
        else:
            trainer.fit(Module(), data)
            assert callback.audit.recorded == (0, 2)
            assert {row.module: row.total.hits for row in callback.audit.rows} == {"net.1": 24}
            with open(Path(logger.log_dir, "metrics.csv")) as file:
                assert [float(line["subgrad/hits"]) for line in csv.DictReader(file)] == [12.0, 12.0]
        assert "net.1" in (tmp_path / "report.html").read_text().replace("<wbr>", "")
        (tmp_path / "report.html").unlink()


def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"x": torch.ones(2)}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"loss": self.net(x).sum()}

    callback = subgrad.loggers.transformers(every=1)
    settings = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, per_device_train_batch_size=4, logging_steps=1, save_strategy="no", use_cpu=True,
        report_to=[], disable_tqdm=True, remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = transformers.Trainer(Model(), settings, train_dataset=Rows(), callbacks=[callback])
    trainer.train()
    assert callback.audit.recorded == (0, 1)
    assert {row.module: row.total.hits for row in callback.audit.rows} == {"net.1": 24}
    assert [each["subgrad/hits"] for each in trainer.state.log_history if "subgrad/hits" in each] == [12.0, 12.0]
