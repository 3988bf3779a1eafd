"""What the report says of nodes and cards: several of one model, and those that were not alone."""

import json

import pandas as pd
import pytest
import synthetic
from prose import checks

from tilewise.evidence import load_evidence
from tilewise.explain import provenance

SLOWER = {"gpu-node7": 1.0, "gpu-node8": 1.05, "gpu-node9": 0.99}


def change(folder, **facts):
    path = folder / "device.json"
    device = json.loads(path.read_text())
    device["gpu"] |= {name: value for name, value in facts.items() if name != "node"}
    path.write_text(json.dumps(device | {"node": facts.get("node", "")}))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Evidence of three cards of one model; node8's takes 5 % more time, and one point is missing on node9.

    Each has launched a kernel twice at one point without timing it, as launch_limits does.
    """
    folder = tmp_path_factory.mktemp("cards")
    for name, factor in SLOWER.items():
        place = synthetic.write(folder / name)
        change(place, uuid=f"GPU-{name}", node=name.removeprefix("gpu-"))
        for path in (place / "measurements.csv", *(place / "tasks").glob("*.csv")):
            rows = pd.read_csv(path)
            rows[["time_ms", "time_q1_ms", "time_q3_ms"]] *= factor
            if name == "gpu-node9":
                rows.loc[(rows.task == "task2a") & (rows.kernel == "tiled"), ["status", "time_ms"]] = "timeout", None
            untimed = rows[rows.kernel == "tiled"].head(1).assign(task="launch_limits", status="ok", time_ms=None)
            rows = pd.concat([rows, untimed, untimed])
            rows.to_csv(path, index=False)
    return load_evidence([folder / name for name in SLOWER], recorded=folder / "none")


def test_the_cards_of_a_model_are_compared_where_all_have_measured(three):
    table = provenance.cards(three).set_index("platform")
    assert list(table.index) == list(SLOWER)
    for name, factor in SLOWER.items():
        assert table.rate_percent[name] == pytest.approx(100 / factor)
    assert table.compared.nunique() == 1
    timed = three.gpu[(three.gpu.platform == "gpu-node7") & three.gpu.time_ms.notna()]
    lost = ((timed.task == "task2a") & (timed.kernel == "tiled")).sum()
    assert lost > 0
    assert table.compared["gpu-node7"] == len(timed) - lost
    assert table.node["gpu-node8"] == "node8"


def test_a_single_card_is_compared_with_none(tmp_path):
    evidence = load_evidence([synthetic.write(tmp_path / "gpu")], recorded=tmp_path / "none")
    assert provenance.cards(evidence).empty
    found = checks(evidence)
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
