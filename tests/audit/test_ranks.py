"""Every rank audits, and results merge: over torch.distributed, and from one file for each rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from distributed.once import run_once

import subgrad
from audit.ranks import network, train
from subgrad.audit import Audit
from subgrad.cli import main

ENGINES = ("DDP", "FSDP2")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_once("audit.ranks", tmp_path_factory)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_gathered_audit_is_that_of_both_batches_in_one_process(engine: str, written: Path) -> None:
    found = Audit.from_json(json.loads(written.read_text())[engine]["gathered"])
    alone = Audit.merge([train(network(), rank).result for rank in range(2)])
    assert (found.ranks, found.recorded, found.steps) == (2, (0, 2), 3)
    counts = [{(row.operator, row.kink, row.site.line): row.series for row in each.rows} for each in (found, alone)]
    assert counts[0] == counts[1]
    assert found.hits > 0
    modules = {row.module.removeprefix("module.") for row in found.rows if row.operator == "relu"}
    assert modules == {"1"}


def test_gradients_are_compared_under_ddp_and_not_of_shards(written: Path) -> None:
    found = {name: Audit.from_json(each["own"]) for name, each in json.loads(written.read_text()).items()}
    assert found["DDP"].effects[0].differing > 0
    assert found["DDP"].effects[0].first.site.source.startswith("(out.clamp")  # type: ignore[union-attr]
    assert not found["DDP"].notes
    assert found["FSDP2"].effects == ()
    assert found["FSDP2"].notes == ("gradients of sharded parameters are not compared",)


def test_one_file_for_each_rank_is_merged_by_the_command(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = sorted(str(each) for each in written.parent.glob(f"{written.name}.DDP.rank*.json"))
    assert len(ranks) == 2
    assert main(["report", *ranks, "--json", str(tmp_path / "merged.json")]) == 0
    gathered = Audit.from_json(json.loads(written.read_text())["DDP"]["gathered"])
    assert Audit.from_json((tmp_path / "merged.json").read_text()) == gathered
    assert "on 2 ranks" in capsys.readouterr().out


def test_without_a_process_group_gathering_is_one_rank() -> None:
    with subgrad.audit() as audit:
        torch.relu(torch.zeros(2, requires_grad=True))
    assert audit.gather() == audit.result
