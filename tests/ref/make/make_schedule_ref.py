#!/usr/bin/env python3
"""Makes tests/ref/schedule.json: the learning rate's scale by step, by the peer's formulas.

    python3 tests/ref/make/make_schedule_ref.py              needs torch (bench/peers/cloob_ref.py imports it)"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench/peers"))
from cloob_ref import lr_scale  # noqa: E402

rows = []
for warmup, total, cycles in (0, 40, None), (10, 100, None), (7, 93, 3), (100, 1000, 7), (500, 400, None), (0, 1, None), (3, 50, 1):
    for step in sorted({0, 1, 2, warmup - 1, warmup, warmup + 1, total // 3, total // 2, total - 1, total, total + 5, *range(0, total, max(1, total // 12))}):
        if step >= 0:
            rows.append(dict(step=step, warmup=warmup, total=total, cycles=cycles, scale=lr_scale(step, warmup, total, cycles)))
text = ",\n".join(json.dumps(r) for r in rows)
(ROOT / "tests/ref/schedule.json").write_text("[\n" + text + "\n]\n")
