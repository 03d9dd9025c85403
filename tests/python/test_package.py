"""The Python package: its embeddings are the program's, its numbers the definition's, its failures exceptions."""
from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import fixture as fx

import cloob
from cloob import _structs


class Library(unittest.TestCase):
    def test_structs_lie_as_the_compiler_lays_them(self) -> None:
        lines = subprocess.run([fx.BUILD / "python_abi"], capture_output=True, text=True, check=True).stdout.split("\n")
        seen, structs = set(), {**_structs.STRUCTS, "TrainCallbacks": _structs.TrainCallbacks}
        for line in filter(None, lines):
            name, *numbers = line.split()
            struct, _, field = name.partition(".")
            ours = structs[struct]
            if field:
                at = getattr(ours, field)
                self.assertEqual([at.offset, at.size], list(map(int, numbers)), name)
                seen.add(name)
            else:
                self.assertEqual(ctypes.sizeof(ours), int(numbers[0]), name)
        declared = {f"{s}.{f[0]}" for s, t in structs.items() for f in t._fields_}
        self.assertEqual(seen, declared)

    def test_adapters_are_attributes(self) -> None:
        code = "import cloob; print(cloob.open_clip.get_tokenizer.__name__, hasattr(cloob, 'nothing'))"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(out, ["get_tokenizer", "False"])

    def test_import_needs_numpy_alone(self) -> None:
        code = "import sys, cloob; print('torch' in sys.modules, cloob.__version__)"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(out, ["False", cloob.version()])
        self.assertIn(cloob.version(), fx.run("--version"))


class Embeddings(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.world = fx.World()
        cls.model = cloob.load(cls.world.model, vocab=cls.world.vocab, device="cpu")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.model.close()
        cls.world.close()

    def test_facts(self) -> None:
        f = self.model.facts
        self.assertEqual((f.family, f.embed, f.image_size, f.context, f.vocab), ("ViT", fx.EMBED, fx.SIZE, fx.CONTEXT, fx.VOCAB))
        self.assertTrue(f.has_tokenizer)
        self.assertAlmostEqual(f.inv_tau, float(np.exp(3.4)), places=3)

    def test_the_same_bytes_as_the_program(self) -> None:
        out, texts = self.world.folder / "e.safetensors", self.world.folder / "texts.txt"
        texts.write_text("\n".join(fx.CAPTIONS) + "\n")
        for flags, output in (([], "unit"), (["--raw"], "raw"), (["--features", "pre"], "features")):
            fx.run("embed", "--checkpoint", self.world.model, "--vocab", self.world.vocab, "--device", "cpu", "--out", out,
                   "--texts", texts, "--images", *self.world.images, *flags)
            theirs = fx.read_safetensors(out)
            np.testing.assert_array_equal(self.model.encode_image(self.world.images, output), theirs["image"])
            np.testing.assert_array_equal(self.model.encode_text(fx.CAPTIONS, output), theirs["text"])

    def test_all_forms_of_a_image(self) -> None:
        want = self.model.encode_image(self.world.images)
        self.assertEqual(want.shape, (2, fx.EMBED))
        np.testing.assert_allclose(np.linalg.norm(want, axis=1), 1, atol=1e-6)
        one = self.model.encode_image(str(self.world.images[0]))
        np.testing.assert_array_equal(one, want[0])
        both = np.stack([fx.image(0), fx.image(1)])
        np.testing.assert_array_equal(self.model.encode_image(both), want)
        np.testing.assert_array_equal(self.model.encode_image([fx.image(0), self.world.images[1]]), want)
        exact = fx.image(2, fx.SIZE, fx.SIZE)
        row = self.model.encode_image(exact)
        mean = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
        std = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
        floats = ((exact / np.float32(255) - mean) / std).transpose(2, 0, 1)
        np.testing.assert_allclose(self.model.encode_image(floats), row, atol=2e-6)
        np.testing.assert_allclose(self.model.encode_image(floats[None].astype(np.float64)), row[None], atol=2e-6)
        self.assertEqual(self.model.encode_image([]).shape, (0, fx.EMBED))

    def test_texts_and_tokens(self) -> None:
        want = self.model.encode_text(fx.CAPTIONS)
        np.testing.assert_array_equal(self.model.encode_text(fx.CAPTIONS[1]), want[1])
        tokens = self.model.tokenize(fx.CAPTIONS)
        np.testing.assert_array_equal(self.model.encode_text(tokens), want)
        np.testing.assert_array_equal(self.model.encode_text(tokens.astype(np.int64)), want)
        np.testing.assert_array_equal(cloob.tokenize(fx.CAPTIONS, self.world.vocab, fx.CONTEXT), tokens)
        theirs = json.loads(fx.run("tokenizer", "encode", "--vocab", self.world.vocab, "--json", *fx.CAPTIONS))
        t = cloob.Tokenizer(self.world.vocab)
        self.assertEqual([t.encode(c) for c in fx.CAPTIONS], theirs)
        self.assertEqual(t.decode(theirs[0]), fx.CAPTIONS[0])
        self.assertEqual((t.vocab_size, t.start_id, t.end_id), (fx.VOCAB, fx.VOCAB - 2, fx.VOCAB - 1))

    def test_failures_are_exceptions(self) -> None:
        with self.assertRaisesRegex(OSError, "nowhere"):
            cloob.load(self.world.folder / "nowhere.safetensors")
        with self.assertRaisesRegex(cloob.FormatError, "captions.txt"):
            cloob.load(self.world.folder / "captions.txt")
        with self.assertRaisesRegex(cloob.Error, "captions.txt"):
            self.model.encode_image(self.world.folder / "captions.txt")
        with self.assertRaisesRegex(ValueError, "token 9999"):
            self.model.encode_text(np.full((1, fx.CONTEXT), 9999))
        for bad in (np.zeros((2, 7)), np.zeros((1, fx.CONTEXT + 1), np.int32)):
            with self.assertRaisesRegex(ValueError, "tokens: expected integers"):
                self.model.encode_text(bad)
        with self.assertRaisesRegex(ValueError, "images: expected"):
            self.model.encode_image(np.zeros((4, 4), np.uint8))
        with self.assertRaises(TypeError):
            self.model.tokenize([b"bytes"])
        with self.assertRaisesRegex(ValueError, "U\\+0000"):
            self.model.encode_text("a\0b")
        with self.assertRaisesRegex(ValueError, "output"):
            self.model.encode_text("a", output="other")
        bare = cloob.load(self.world.model, device="cpu")
        with self.assertRaisesRegex(ValueError, "tokenizer"):
            bare.encode_text("a")
        bare.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            bare.encode_image(fx.image(0))

    def test_misuse_raises(self) -> None:
        for bad in (None, 7, 1.5, [], object()):
            with self.assertRaises((TypeError, ValueError)):
                cloob.load(bad)  # type: ignore[arg-type]
        for name in ("a\0b", b"a\0b"):
            with self.assertRaises(ValueError):
                cloob.load(name)  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            cloob.load(self.world.model, device="cpu\0x")
        for wrong in ({"batch": 0}, {"batch": 2**63}, {"batch": -(2**70)}, {"threads": 2**40}, {"threads": -1}, {"batch": True}):
            with self.assertRaisesRegex(ValueError, "whole number"):
                cloob.load(self.world.model, device="cpu", **wrong)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            cloob.load(self.world.model, batch="8")  # type: ignore[arg-type]
        t = cloob.Tokenizer(self.world.vocab)
        for ids in ([2**31], [-(2**40)], [2**70]):
            with self.assertRaises(ValueError):
                t.decode(ids)
        for length in (0, -3, 2**62):
            with self.assertRaises(ValueError):
                t("a", length)
        for dtype in (complex, object, "U4", bool):
            with self.assertRaises(TypeError):
                cloob.hopfield(np.ones((2, 4)).astype(dtype), np.ones((2, 4)))
        with self.assertRaises(ValueError):
            cloob.hopfield(np.eye(4), np.eye(4), updates=2**31)
        with self.assertRaisesRegex(ArithmeticError, "NaN"):
            self.model.encode_image(np.full((3, fx.SIZE, fx.SIZE), np.nan, np.float32))

    def test_closing_waits_for_other_threads(self) -> None:
        for _ in range(5):
            model, seen = cloob.load(self.world.model, vocab=self.world.vocab, device="cpu"), []
            want, begun = model.encode_text(fx.CAPTIONS), threading.Barrier(4)

            def work() -> None:
                begun.wait()
                for _ in range(50):
                    try:
                        seen.append(np.array_equal(model.encode_text(fx.CAPTIONS), want))
                    except ValueError:  # closed
                        return

            threads = [threading.Thread(target=work) for _ in range(3)]
            [t.start() for t in threads]
            begun.wait()
            model.close()
            [t.join(60) for t in threads]
            self.assertTrue(all(seen))
            model.close()

    def test_threads(self) -> None:
        want, got = self.model.encode_text(fx.CAPTIONS), {}

        def work(i: int) -> None:
            got[i] = self.model.encode_text(fx.CAPTIONS)
            cloob.objective(fx.unit_rows(i, 8, 4), fx.unit_rows(9, 8, 4))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads], [t.join(60) for t in threads]
        for i in range(4):
            np.testing.assert_array_equal(got[i], want)


class Numbers(unittest.TestCase):
    def test_hopfield_by_hand(self) -> None:
        states, stored = fx.unit_rows(0, 5, 8), fx.unit_rows(1, 7, 8)
        e = np.exp(4.0 * states.astype(np.float64) @ stored.T)
        want = e / e.sum(1, keepdims=True) @ stored
        np.testing.assert_allclose(cloob.hopfield(states, stored, 4.0, unit=False), want, atol=1e-6)
        want /= np.linalg.norm(want, axis=1, keepdims=True)
        np.testing.assert_allclose(cloob.hopfield(states, stored, 4.0), want, atol=1e-6)
        before, after = (cloob.hopfield_energy(s, stored, 4.0) for s in (states, cloob.hopfield(states, stored, 4.0, unit=False)))
        self.assertTrue((after <= before).all())
        with self.assertRaisesRegex(ValueError, "width"):
            cloob.hopfield(states, stored[:, :4])
        with self.assertRaisesRegex(ValueError, "Hopfield scale"):
            cloob.hopfield(states, stored, -1.0)
        with self.assertRaisesRegex(cloob.NumericError, "state 1"):
            cloob.hopfield(np.array([[1, 0], [np.nan, 0]]), np.eye(2))

    def test_objective_agrees_with_doubles_and_slopes(self) -> None:
        x, y, u, v = (fx.unit_rows(i, n, 6, np.float64) for i, n in enumerate((5, 5, 4, 9)))
        for method in cloob.METHODS:
            for sets in ({}, {"u": u, "v": v}):
                o = cloob.objective(x, y, method=method, inv_tau=7, scale_hopfield=3, **sets)
                f = cloob.objective(x.astype(np.float32), y.astype(np.float32), method=method, inv_tau=7, scale_hopfield=3,
                                    **{k: a.astype(np.float32) for k, a in sets.items()})
                self.assertAlmostEqual(o.loss, f.loss, places=5)
                self.assertEqual((o.dx.dtype, f.dx.dtype), (np.float64, np.float32))
                np.testing.assert_allclose(f.dx, o.dx, atol=1e-5)
                moved, h = x.copy(), 1e-6
                moved[2, 3] += h
                up = cloob.objective(moved, y, method=method, inv_tau=7, scale_hopfield=3, gradients=False, **sets).loss
                self.assertAlmostEqual((up - o.loss) / h, o.dx[2, 3], places=4)
        with self.assertRaisesRegex(ValueError, "method"):
            cloob.objective(x, y, method="other")
        with self.assertRaisesRegex(ValueError, "y is"):
            cloob.objective(x, y[:3])
        with self.assertRaisesRegex(cloob.NumericError, "row 0 has length 2"):
            cloob.objective(2 * x, y)

    def test_frozen_objective(self) -> None:
        names = {"cloob": "cloob", "clip": "infonce", "infoloob": "infoloob", "infonce-hopfield": "infonce_hopfield"}
        files = sorted((fx.REF / "objective").glob("objective_*.safetensors"))
        self.assertTrue(files)
        for file in files:
            f = fx.read_safetensors(file)
            sets = {k.lower(): f[k].astype(np.float64) for k in "UV" if k in f}
            for method, name in names.items():
                o = cloob.objective(f["x"].astype(np.float64), f["y"].astype(np.float64), method=method, inv_tau=float(f["inv_tau"].item()),
                                    scale_hopfield=float(f["beta"].item()), **sets)
                self.assertAlmostEqual(o.loss, f[name + ".loss"].item(), places=6, msg=f"{file.name} {method}")
                error = np.linalg.norm(o.dx - f[name + ".dx"]) / max(np.linalg.norm(f[name + ".dx"]), 0.01)
                self.assertLess(error, 1e-5, f"{file.name} {method}")
                halves = 2 if "infonce" in name else 1  # CLIP trains with half the sum of the terms
                for got, scale in ((o.dinv_tau, "inv_tau"), (o.dscale, "beta")):
                    want = halves * f[f"{name}.train_dlogit_{scale}"].item()
                    self.assertAlmostEqual(got * f[scale].item(), want, delta=1e-8 * max(1, abs(want)), msg=f"{file.name} {method}")

    def test_frozen_model(self) -> None:
        f = fx.read_safetensors(fx.REF / "foreign/mini-rn.safetensors")
        with cloob.load(fx.REF / "foreign/authors_epoch_2.pt", config=fx.REF / "foreign/mini-rn.json", device="cpu") as m:
            image = m.encode_image(fx.procedural_images(6, 64), "raw")
            text = m.encode_text(fx.procedural_tokens(6, 10, 80), "raw")
        np.testing.assert_allclose(image, f["eval.image"], atol=1e-4)
        np.testing.assert_allclose(text, f["eval.text"], atol=1e-4)


class Wheel(unittest.TestCase):
    def test_builds_and_imports(self) -> None:
        import os
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, fx.SOURCE / "python/builder.py", "--plain", folder], check=True, capture_output=True,
                           env={**os.environ, "CLOOB_LIBRARY": str(fx.BUILD / "libcloob.so")})
            wheel, = Path(folder).glob("*.whl")
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, f"{folder}/site"], check=True)
            env = {k: v for k, v in os.environ.items() if k != "CLOOB_LIBRARY"}
            out = subprocess.run([sys.executable, "-c", "import cloob; print(cloob.library_path())"], check=True, capture_output=True,
                                 text=True, cwd=folder, env={**env, "PYTHONPATH": f"{folder}/site"}).stdout.strip()
            self.assertEqual(out, f"{folder}/site/cloob/libcloob.so")
            self.assertTrue((Path(folder) / "site/cloob/py.typed").exists())


if __name__ == "__main__":
    unittest.main()
