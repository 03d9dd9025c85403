"""The objective under autograd, where PyTorch is there."""
from __future__ import annotations

import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import fixture as fx

import cloob

try:
    import torch
    import cloob.torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is not there")
class Autograd(unittest.TestCase):
    def rows(self, seed: int, n: int, d: int = 6, dtype: type = np.float64):
        return torch.from_numpy(fx.unit_rows(seed, n, d, dtype)).requires_grad_()

    def test_gradcheck(self) -> None:
        for method in cloob.METHODS:
            for stored in (False, True):
                x, y = self.rows(0, 5), self.rows(1, 5)
                u, v = (self.rows(2, 4), self.rows(3, 7)) if stored else (None, None)
                tau = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
                beta = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
                sets = (u, v) if stored and method in ("cloob", "infonce-hopfield") else ()

                def f(x, y, tau, beta, *sets):
                    kw = dict(zip("uv", sets))
                    return cloob.torch.objective(x, y, method=method, inv_tau=tau, scale_hopfield=beta, **kw)

                self.assertTrue(torch.autograd.gradcheck(f, (x, y, tau, beta, *sets)), method)

    def test_gradcheck_through_unit_length(self) -> None:
        loss = cloob.torch.CLOOBLoss(learnable_inv_tau=True, learnable_scale_hopfield=True).double()
        a, b = (torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(i), requires_grad=True) for i in (0, 1))
        self.assertTrue(torch.autograd.gradcheck(loss, (a, b)))

    def test_second_derivatives_are_refused(self) -> None:
        # through unit length: the part of the second derivative behind the objective is known, its own is not
        image, text = (torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(i), requires_grad=True) for i in (0, 1))
        loss = cloob.torch.CLOOBLoss(learnable_inv_tau=True).double()
        scale = loss.logit_inv_tau
        for value in (loss(image, text), 3 * loss(image, text) ** 2):
            first = torch.autograd.grad(value, (image, text, scale), create_graph=True)
            for g in first:
                for wanted in (image, text, scale):
                    with self.assertRaisesRegex(cloob.UnsupportedError, "once"):
                        torch.autograd.grad((g ** 2).sum(), wanted, retain_graph=True)
                with self.assertRaisesRegex(cloob.UnsupportedError, "once"):
                    (g.sum() + image.sum()).backward(retain_graph=True)
        plain = torch.autograd.grad(loss(image, text), (image, text, scale))
        for g, want in zip(torch.autograd.grad(loss(image, text), (image, text, scale), create_graph=True), plain):
            torch.testing.assert_close(g.detach(), want)

    def test_equals_the_reference(self) -> None:
        sys.path.insert(0, str(fx.PEERS))
        import cloob_ref

        for method, flags in {"cloob": (True, True), "clip": (False, False), "infoloob": (False, True), "infonce-hopfield": (True, False)}.items():
            x, y = self.rows(0, 33, 16), self.rows(1, 33, 16)
            cloob.torch.objective(x, y, method=method).backward()
            rx, ry = x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
            want = cloob_ref.objective(rx, ry, hop=flags[0], loob=flags[1])[0]
            want.backward()
            np.testing.assert_allclose(x.grad, rx.grad, atol=1e-10)
            np.testing.assert_allclose(y.grad, ry.grad, atol=1e-10)
            self.assertAlmostEqual(cloob.torch.objective(x, y, method=method).item(), want.item(), places=10)

    def test_learned_scales_follow_what_clip_and_the_paper_train(self) -> None:
        sys.path.insert(0, str(fx.PEERS))
        import cloob_ref

        for method, flags in {"cloob": (True, True), "clip": (False, False), "infoloob": (False, True), "infonce-hopfield": (True, False)}.items():
            loss = cloob.torch.CLOOBLoss(method, 14.3, 8.0, learnable_inv_tau=True, learnable_scale_hopfield=True).double()
            x, y = self.rows(0, 33, 16), self.rows(1, 33, 16)
            loss(x, y).backward()
            logit = [torch.tensor(v.item(), dtype=torch.float64, requires_grad=True) for v in (loss.logit_inv_tau, loss.logit_scale_hopfield)]
            rx, ry = x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
            unit = torch.nn.functional.normalize
            scaled, image, text = cloob_ref.objective(unit(rx, dim=1), unit(ry, dim=1), hop=flags[0], loob=flags[1], inv_tau=logit[0].exp(), beta=logit[1].exp())
            want = scaled if flags[1] else (image + text) / 2
            self.assertAlmostEqual(loss(x, y).item(), want.item(), places=10)
            want.backward()
            self.assertAlmostEqual(loss.logit_inv_tau.grad.item(), logit[0].grad.item(), places=10, msg=method)
            if flags[0]:
                self.assertAlmostEqual(loss.logit_scale_hopfield.grad.item(), logit[1].grad.item(), places=10, msg=method)
            np.testing.assert_allclose(x.grad, rx.grad, atol=1e-10)
            if method == "clip":  # pairs that do not match: the inverse temperature must fall
                self.assertGreater(loss.logit_inv_tau.grad.item(), 0.1)

    def test_float_and_bfloat(self) -> None:
        wide = self.rows(0, 40, 32), self.rows(1, 40, 32)
        cloob.torch.objective(*wide).backward()
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
            x, y = (t.detach().to(dtype).requires_grad_() for t in wide)
            (2 * cloob.torch.objective(x, y)).backward()
            self.assertEqual(x.grad.dtype, dtype)
            error = (x.grad.double() / 2 - wide[0].grad).norm() / wide[0].grad.norm()
            self.assertLess(float(error), tolerance)

    def test_tensors_are_used_where_they_lie(self) -> None:
        from cloob._inputs import rows

        t = torch.from_numpy(fx.unit_rows(0, 4, 3)).requires_grad_()
        self.assertEqual(rows(t, "t").ctypes.data, t.data_ptr())
        out = cloob.hopfield(t, t)
        self.assertEqual(torch.from_dlpack(out).data_ptr(), out.ctypes.data)

    def test_refusals(self) -> None:
        x, y = self.rows(0, 4), self.rows(1, 4)
        with self.assertRaisesRegex(cloob.NumericError, "unit length"):
            cloob.torch.objective(3 * x, y)
        with self.assertRaisesRegex(ValueError, "y is"):
            cloob.torch.objective(x, y.float())
        with self.assertRaisesRegex(ValueError, "float16"):
            cloob.torch.objective(x.half(), y.half())
        with self.assertRaisesRegex(ValueError, "at least 2"):
            cloob.torch.objective(x[:1], y[:1])
        g, = torch.autograd.grad(cloob.torch.objective(x, y), x, create_graph=True)
        with self.assertRaisesRegex(cloob.UnsupportedError, "once"):
            g.sum().backward()


if __name__ == "__main__":
    unittest.main()
