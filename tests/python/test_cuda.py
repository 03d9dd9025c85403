"""The objective on CUDA tensors, where PyTorch, a GPU and a library with the CUDA backend are there: against the plain
definition in doubles on the same GPU, in the tensors' own memory, without a matrix that travels to the host."""
from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any, Optional

import cloob

try:
    import torch
    import cloob.torch

    THERE = torch.cuda.is_available()
except ImportError:
    torch, THERE = None, False

FLAGS = {"cloob": (True, True), "clip": (False, False), "infoloob": (False, True), "infonce-hopfield": (True, False)}


def plain(x: Any, y: Any, method: str, inv_tau: Any, beta: Any, u: Optional[Any] = None, v: Optional[Any] = None) -> Any:
    hopfield, leave_one_out = FLAGS[method]
    unit = torch.nn.functional.normalize
    u, v = x if u is None else u, y if v is None else v

    def retrieve(a: Any, w: Any) -> Any:
        return unit(torch.softmax(beta * a @ w.T, dim=1) @ w, dim=1) if hopfield else a

    def term(a: Any, b: Any) -> Any:
        k = inv_tau * a @ b.T
        others = k.masked_fill(torch.eye(len(k), dtype=torch.bool, device=k.device), -torch.inf) if leave_one_out else k
        return (torch.logsumexp(others, dim=1) - k.diagonal()).mean()

    return (term(retrieve(x, u), retrieve(y, u)) + term(retrieve(y, v), retrieve(x, v))) / inv_tau


def off(got: Any, want: Any) -> float:
    return float((got.double() - want).norm() / want.norm())


@unittest.skipUnless(THERE, "PyTorch with a GPU is not there")
class Cuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        try:
            one = torch.eye(4, device="cuda")
            cloob.torch.objective(one, one)
        except cloob.UnsupportedError as e:
            raise unittest.SkipTest(str(e))

    def rows(self, seed: int, n: int, d: int, dtype: Any, near: Optional[Any] = None) -> Any:
        r = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        r = r if near is None else r + near.detach().double().cpu() * d**0.5
        return torch.nn.functional.normalize(r, dim=1).to("cuda", dtype).requires_grad_()

    def compare(self, method: str, dtype: Any, n: int, d: int, stored: bool) -> dict[str, float]:
        x = self.rows(0, n, d, dtype)
        sets = {"x": x, "y": self.rows(1, n, d, dtype, x)}
        if stored:
            sets.update(u=self.rows(2, 40, d, dtype), v=self.rows(3, 77, d, dtype))
        scales = {k: torch.tensor(s, device="cuda", requires_grad=True) for k, s in (("inv_tau", 20.0), ("scale_hopfield", 8.0))}
        loss = cloob.torch.objective(sets["x"], sets["y"], method=method, **scales, **{k: sets[k] for k in sets if k in "uv"})
        (3 * loss).backward()
        wide = {k: t.detach().double().requires_grad_() for k, t in {**sets, **scales}.items()}
        want = plain(wide["x"], wide["y"], method, wide["inv_tau"], wide["scale_hopfield"], wide.get("u"), wide.get("v"))
        (3 * want).backward()
        errors = {"loss": abs(float(loss.detach()) / float(want.detach()) - 1)}
        for k, t in {**sets, **scales}.items():
            if wide[k].grad is None:
                continue  # the scale of a retrieval that the method does not have
            self.assertEqual((t.grad.device, t.grad.dtype), (t.device, t.dtype))
            errors["d" + k] = off(t.grad, wide[k].grad)
        return errors

    def check(self, dtype: Any, loss: float, gradient: float, stored_too: bool = True) -> None:
        worst: dict[str, float] = {}
        for method in FLAGS:
            for n, d in ((64, 40), (257, 96), (1000, 256)):
                for stored in (False, True) if stored_too and FLAGS[method][0] else (False,):
                    for k, e in self.compare(method, dtype, n, d, stored).items():
                        worst[k] = max(e, worst.get(k, 0))
                        self.assertLess(e, loss if k == "loss" else gradient, f"{k}, {method}, {n} x {d}, stored {stored}")
        print(f"\n  {dtype}, worst: " + ", ".join(f"{k} {e:.1e}" for k, e in worst.items()))

    def test_float_equals_the_definition(self) -> None:
        self.check(torch.float32, 1e-5, 1e-4)

    def test_bfloat_equals_the_definition(self) -> None:
        self.check(torch.bfloat16, 2e-2, 2e-2)

    def test_nothing_large_travels(self) -> None:
        """Copies between host and device during a call: fewer bytes than a hundredth of the rows."""
        from torch.profiler import ProfilerActivity, profile

        x = self.rows(0, 4096, 512, torch.bfloat16)
        y = self.rows(1, 4096, 512, torch.bfloat16, x)
        cloob.torch.objective(x, y).backward()
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            probe = x.detach()[:100].cpu()  # one copy that must be seen
            cloob.torch.objective(x, y).backward()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            p.export_chrome_trace(f"{folder}/trace.json")
            events = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
        copies = [(e["name"], e.get("args", {}).get("bytes", 0)) for e in events if e.get("cat") == "gpu_memcpy" and "DtoD" not in e["name"]]
        if probe.nbytes not in [n for _, n in copies]:
            self.skipTest("this profiler does not tell the bytes of copies")
        print(f"\n  between host and device: {copies}")
        self.assertLess(sum(n for _, n in copies) - probe.nbytes, x.nbytes // 100)

    def test_another_stream_waits_for_its_rows(self) -> None:
        x, y = self.rows(0, 512, 64, torch.float32), self.rows(1, 512, 64, torch.float32)
        want = float(cloob.torch.objective(x, y).detach())
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(20):
                torch.mm(torch.ones(2048, 2048, device="cuda"), torch.ones(2048, 2048, device="cuda"))
            late = x.detach() * 1.0
            got = cloob.torch.objective(late, y)
        self.assertAlmostEqual(float(got.detach()), want, places=6)

    def test_refusals(self) -> None:
        x = self.rows(0, 16, 8, torch.float32)
        with self.assertRaises(cloob.Error):
            cloob.torch.objective(x, x.cpu())
        with self.assertRaises(cloob.Error):
            cloob.torch.objective(x.double(), x.double())
        with self.assertRaises(cloob.NumericError):
            cloob.torch.objective(2 * x.detach(), x)


if __name__ == "__main__":
    unittest.main(verbosity=2)
