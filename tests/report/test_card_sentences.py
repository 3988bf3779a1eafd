"""What the report says of cards that were not alone."""

import json

import pandas as pd
import pytest
import synthetic
from prose import checks

from tilewise.evidence import load_evidence


def change(folder, **facts):
    path = folder / "device.json"
    device = json.loads(path.read_text())
    path.write_text(json.dumps(device | {"gpu": device["gpu"] | facts}))


@pytest.mark.parametrize("task", ["task2a", "bandwidth"])
def test_a_card_alone_has_no_other_users(tmp_path, task):
    """Also where no kernel ran."""
    folder = synthetic.write(tmp_path / "gpu", study=synthetic.config(task))
    found = checks(load_evidence([folder], recorded=tmp_path / "none"))
    assert found["other users of the GPU at the start"] == "none known" and "measured beside other work" not in found


def test_a_card_in_use_and_rows_beside_other_work_are_said(tmp_path):
    place = synthetic.write(tmp_path / "gpu")
    change(place, busy=["MIG is on, so that the card is divided", "2 other processes on it"])
    rows = pd.read_csv(place / "measurements.csv")
    rows["alone"] = [False, True] * (len(rows) // 2) + [None] * (len(rows) % 2)
    rows.to_csv(place / "measurements.csv", index=False)
    evidence = load_evidence([place], recorded=tmp_path / "none")
    found = checks(evidence)
    assert (
        found["other users of the GPU at the start"]
        == "MIG is on, so that the card is divided; 2 other processes on it"
    )
    assert found["measured beside other work"].startswith(f"{len(rows) // 2:,} of {len(rows) // 2 * 2:,} points")
