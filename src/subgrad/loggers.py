"""What an audit finds, step by step, for the loggers people use. Each needs its own package, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from subgrad.audit import Audit, Session, audit
from subgrad.extras import needed

__all__ = ["lightning", "tensorboard", "transformers", "wandb"]
PREFIX = "subgrad"


def _named(met: Mapping[str, float]) -> dict[str, float]:
    return {f"{PREFIX}/{name}": value for name, value in met.items()}


def tensorboard(writer: Any) -> Any:
    """A listener that writes hits and their share to a ``SummaryWriter``.

    ``subgrad.audit(model, listeners=[subgrad.loggers.tensorboard(writer)])``
    """

    def listen(step: int, met: Mapping[str, float]) -> None:
        for name, value in _named(met).items():
            writer.add_scalar(name, value, step)

    return listen


def wandb(run: Any = None) -> Any:
    """A listener that logs to a run of Weights & Biases, or to the one that ``wandb.init`` has begun.

    The number of the step goes along as ``subgrad/step``, so that the steps of the run stay its own.
    """

    def listen(step: int, met: Mapping[str, float]) -> None:
        if met:
            _run(run).log({**_named(met), f"{PREFIX}/step": step}, commit=False)

    return listen


def _run(run: Any) -> Any:
    if run is not None:
        return run
    with needed("subgrad.loggers.wandb logs to runs of", "wandb"):
        import wandb  # pyright: ignore[reportMissingImports]
    if wandb.run is None:
        raise RuntimeError("No run of wandb has begun: call wandb.init() first, or give one to subgrad.loggers.wandb.")
    return wandb.run


class _Kept:
    """An audit from the beginning of a training to its end, and the last step that was recorded."""

    def __init__(self, html: str | Path | None, settings: Mapping[str, Any]):
        self.html, self.settings = html, settings
        self.session: Session | None = None
        self.last: dict[str, float] = {}

    def begin(self, model: Any) -> None:
        settings: dict[str, Any] = {**self.settings, "listeners": [*self.settings.get("listeners", ()), self._keep]}
        self.session = audit(model, **settings)
        self.session.__enter__()

    def end(self) -> None:
        if self.session is None or self.session.has_ended:
            return
        self.session.__exit__(None, None, None)
        if self.html is not None:
            self.session.to_html(self.html)

    def _keep(self, step: int, met: Mapping[str, float]) -> None:
        self.last.update(_named(met))

    def take(self) -> dict[str, float]:
        """What was recorded since it was last taken."""
        taken, self.last = self.last, {}
        return taken

    @property
    def result(self) -> Audit | None:
        return None if self.session is None else self.session.result


def lightning(html: str | Path | None = None, **settings: Any) -> Any:
    """A callback for ``lightning.Trainer`` (or ``pytorch_lightning``) that audits the training.

    Hits are logged to the trainer's loggers; ``callback.audit`` is what was found. ``settings`` are those of
    `subgrad.audit`; ``html`` is where the report is written in the end, also when training fails.
    """
    package: Any
    if find_spec("lightning") is None and find_spec("pytorch_lightning") is not None:
        import pytorch_lightning as package  # pyright: ignore[reportMissingImports]
    else:
        with needed("subgrad.loggers.lightning makes a callback of", "lightning"):
            import lightning.pytorch as package  # pyright: ignore[reportMissingImports]

    class KinkAudit(package.Callback):
        def __init__(self) -> None:
            self._kept = _Kept(html, settings)

        @property
        def audit(self) -> Audit | None:
            return self._kept.result

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._kept.begin(pl_module)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            found = self._kept.take()
            if found:
                for logger in trainer.loggers:
                    logger.log_metrics(found, step=trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._kept.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._kept.end()

    return KinkAudit()


def transformers(html: str | Path | None = None, **settings: Any) -> Any:
    """A callback for the ``Trainer`` of Hugging Face's transformers; as `lightning`.

    Hits go along with what the trainer logs, to whatever it reports to. That trainer tells nobody when training fails:
    where it may, put ``with subgrad.audit(model):`` around ``trainer.train()`` instead.
    """
    with needed("subgrad.loggers.transformers makes a callback of", "transformers"):
        from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]

    class KinkAudit(TrainerCallback):
        def __init__(self) -> None:
            self._kept = _Kept(html, settings)

        @property
        def audit(self) -> Audit | None:
            return self._kept.result

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            self._kept.begin(model)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            found = self._kept.take()
            for told in (logs, state.log_history[-1] if state.log_history else None):
                if told is not None:
                    told.update(found)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._kept.end()

    return KinkAudit()


def __dir__() -> list[str]:
    return sorted(__all__)
