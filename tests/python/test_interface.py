"""What people build with: forms of images, classes, indexes, training, evaluation; pickling, forks, threads, examples, types."""
from __future__ import annotations

import doctest
import importlib
import importlib.util
import io
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import fixture as fx

import cloob


def _rows_in_child(model: cloob.Model, texts: list[str], queue: Any) -> None:
    queue.put((model.encode_text(texts), model.encode_image([fx.image(0)] * 40), cloob.hopfield(np.eye(64), np.eye(64))))


class WithModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.world = fx.World()
        cls.folder = cls.world.folder
        cls.model = cloob.load(cls.world.model, vocab=cls.world.vocab, device="cpu")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.model.close()
        cls.world.close()


class Towers(WithModel):
    """A tower alone encodes its side; the other side is refused by name."""
    def test_image_tower(self) -> None:
        with cloob.load(fx.REF / "towers/clip_vision_projection", device="cpu") as m:
            self.assertEqual((m.facts.image_size, m.facts.context, m.facts.text_features), (16, 0, 0))
            self.assertEqual(m.encode_image(self.world.images).shape, (2, 12))
            for call in (lambda: m.encode_text(["a dog"]), lambda: m.encode_text([[1, 2]]), lambda: m.tokenize("a dog"),
                         lambda: m.classify(self.world.images, ["a", "b"])):
                self.assertRaisesRegex(cloob.Error, "no text tower", call)

    def test_text_tower(self) -> None:
        with cloob.load(fx.REF / "towers/clip_text_projection", device="cpu") as m:
            self.assertEqual((m.facts.image_size, m.facts.context, m.facts.image_features), (0, 8, 0))
            self.assertEqual(m.encode_text(np.array([[38, 4, 39, 0, 0, 0, 0, 0]])).shape, (1, 12))
            for images in (self.world.images, [self.world.images[0].read_bytes()], np.zeros((2, 16, 16, 3), np.uint8),
                           np.zeros((1, 3, 16, 16), np.float32)):
                self.assertRaisesRegex(cloob.Error, "no image tower", m.encode_image, images)
            self.assertRaisesRegex(cloob.Error, "no image tower", m.preprocess, self.world.images)


class Precision(WithModel):
    def test_half_precision(self) -> None:
        """Only the matrices are rounded: the rows are close to those of fp32, but not equal."""
        want = self.model.encode_text("a red square")
        for name in ("f16", "fp16"):
            with cloob.load(self.world.model, vocab=self.world.vocab, device="cpu", precision=name) as m:
                self.assertEqual(m.facts.precision, "f16")
                row = m.encode_text("a red square")
                self.assertFalse(np.array_equal(row, want))
                np.testing.assert_allclose(row, want, atol=5e-3)
        self.assertRaisesRegex(ValueError, "fp32, bf16, f16", cloob.load, self.world.model, precision="f8")


class Images(WithModel):
    def test_encoded_bytes_are_the_file(self) -> None:
        want = self.model.encode_image(self.world.images)
        data = [p.read_bytes() for p in self.world.images]
        np.testing.assert_array_equal(self.model.encode_image(data), want)
        np.testing.assert_array_equal(self.model.encode_image(bytearray(data[0])), want[0])
        np.testing.assert_array_equal(self.model.encode_image([memoryview(data[0]), self.world.images[1]]), want)
        np.testing.assert_allclose(self.model.encode_image(self.model.preprocess(self.world.images)), want, atol=1e-6)

    def test_open_files_and_iterables(self) -> None:
        want = self.model.encode_image(self.world.images)
        with open(self.world.images[0], "rb") as f:
            np.testing.assert_array_equal(self.model.encode_image(f), want[0])
        np.testing.assert_array_equal(self.model.encode_image(io.BytesIO(p.read_bytes()) for p in self.world.images), want)
        texts = ["a red square", "a dog"]
        for form in (iter(texts), tuple(texts), np.array(texts), np.array(texts, object)):
            np.testing.assert_array_equal(self.model.encode_text(form), self.model.encode_text(texts))
        for bad in (None, 3):
            self.assertRaisesRegex(TypeError, "images: expected", self.model.encode_image, bad)
            self.assertRaisesRegex(TypeError, "texts: expected", self.model.encode_text, bad)
        self.assertRaisesRegex(TypeError, "got bytes", self.model.encode_text, b"a dog")

    def test_an_error_names_its_input(self) -> None:
        good, missing = self.world.images[0], self.folder / "missing.png"
        cases = [(missing, OSError, "missing.png"), (b"no image", cloob.FormatError, "image 1"), (b"", cloob.ArgumentError, r"images\[1\]"),
                 (None, (TypeError, ValueError), r"images\[1\]"), (np.zeros((2, 2)), ValueError, r"images\[1\]")]
        for bad, kind, name in cases:
            with self.assertRaisesRegex(kind, name):
                self.model.encode_image([good, bad])
        with self.assertRaisesRegex(TypeError, r"texts\[2\]"):
            self.model.encode_text(["a", "b", 3])  # type: ignore[list-item]

    def test_skip_leaves_the_others(self) -> None:
        good = [self.world.images[0], fx.image(1)]
        want = self.model.encode_image(good)
        rows, ok = self.model.encode_image([good[0], "missing.png", b"junk", good[1], None], errors="skip")
        self.assertEqual(ok.tolist(), [True, False, False, True, False])
        np.testing.assert_array_equal(rows[ok], want)
        self.assertFalse(rows[~ok].any())
        p, ok = self.model.classify([b"junk", good[0]], ["cat", "dog"], errors="skip")
        self.assertEqual(ok.tolist(), [False, True])
        np.testing.assert_array_equal(p[1], self.model.classify(good[0], ["cat", "dog"]))
        x = self.model.preprocess(good)
        x[0, 0, 0, 0] = np.nan
        rows, ok = self.model.encode_image(x, errors="skip")
        self.assertEqual(ok.tolist(), [False, True])
        np.testing.assert_allclose(rows[1], want[1], atol=1e-6)
        with self.assertRaisesRegex(ValueError, "skip"):
            self.model.encode_image(good, errors="ignore")  # type: ignore[call-overload]

    def test_classify_is_the_program(self) -> None:
        labels = ["red", "blue", "green"]
        p = self.model.classify(self.world.images, labels)
        out = json.loads(fx.run("classify", "--checkpoint", self.world.model, "--vocab", self.world.vocab, "--device", "cpu", "--json",
                                "--labels", ",".join(labels), *self.world.images))
        for row, theirs in zip(p, out):
            top = {t["label"]: t["p"] for t in theirs["top"]}
            np.testing.assert_allclose(row, [top[n] for n in labels], atol=1e-5)
        with self.assertRaises(ValueError):
            self.model.classify(self.world.images, ["one"])
        with self.assertRaisesRegex(ValueError, "needs {}"):
            self.model.classify(self.world.images, labels, ["no place"])
        with self.assertRaises(TypeError):
            self.model.classify(self.world.images, "red")


class Indexes(WithModel):
    def test_an_index_of_a_folder_and_of_rows(self) -> None:
        photos = self.folder / "photos"
        photos.mkdir()
        for i in range(4):
            (photos / f"{i}.png").write_bytes(fx.png(fx.image(i)))
        index = cloob.Index.build(photos, self.model)
        self.assertEqual((len(index), len(cloob.Index.build(photos, self.world.model, self.folder / "path.index"))), (4, 4))
        hits = index.search(image=photos / "2.png", k=2)
        self.assertEqual((hits[0].name, hits[0].path), ("2.png", str(photos.resolve() / "2.png")))
        self.assertAlmostEqual(hits[0].score, 1, places=5)
        rows = self.model.encode_image([photos / f"{i}.png" for i in range(4)])
        query = self.model.encode_text("a small red square")
        order = [f"{i}.png" for i in np.argsort(-(rows @ query))]
        self.assertEqual([h.name for h in index.search("a small red square", k=4)], order)

        self.assertEqual(index.add([fx.png(fx.image(7)), b"junk"], ["seven", "bad"], errors="skip"), 1)
        self.assertEqual(index.add(vectors=3 * rows[:1], names=["2.png"]), 1)  # replaces the file's row
        for _ in range(2):  # unsaved, then saved
            self.assertEqual(index.search(image=fx.image(7), k=1)[0].name, "seven")
            self.assertEqual([h.name for h in index.search(vector=rows[0], k=2)], ["0.png", "2.png"])
            self.assertEqual(len([h for h in index.search("x", k=9) if h.name == "2.png"]), 1)
            index.save()
        self.assertEqual(len(index), 5)
        again = pickle.loads(pickle.dumps(cloob.Index.open(photos)))
        # Each index has its own model, and a GPU chooses kernels by time: scores may differ by rounding, so the two equal
        # rows ("0.png" and "2.png") may come in either order.
        first, second = ({h.name: h for h in i.search("a small red square", k=5)} for i in (again, index))
        self.assertEqual({n: h.path for n, h in first.items()}, {n: h.path for n, h in second.items()})
        for name, hit in first.items():
            self.assertAlmostEqual(hit.score, second[name].score, places=6)
        out = json.loads(fx.run("search", "query", "--index", photos / ".cloob-index.safetensors", "--json", "a small red square"))
        self.assertEqual(len(out), 5)
        scores = {h.path: h.score for h in second.values()}
        for hit in out:
            self.assertAlmostEqual(hit["score"], scores[hit["path"]], places=5)

    def test_a_new_index(self) -> None:
        index = cloob.Index(self.model, root=self.folder)
        self.assertEqual(index.add(self.world.images), 2)
        with self.assertRaisesRegex(ValueError, "path"):
            index.save()
        index.save(self.folder / "new.index")
        self.assertEqual(sorted(h.name for h in index.search("a", k=9)), sorted(p.name for p in self.world.images))
        with self.assertRaisesRegex(ValueError, "names"):
            index.add([fx.image(0)])
        with self.assertRaisesRegex(ValueError, "elements"):
            index.search(vector=np.ones(3))
        for wrong in (dict(vectors=np.eye(3), names=["a", "b", "c"]), dict(vectors=index.model.encode_text(["a"]), names="a")):
            self.assertRaises(ValueError, index.add, **wrong)  # nothing was added: the index can still be saved
        index.save()
        self.assertRaisesRegex(ValueError, "zero", index.search, vector=np.zeros(self.model.facts.embed))
        self.assertRaisesRegex(TypeError, "text: expected a str", index.search, ["a", "b"])
        other = cloob.load(fx.REF / "foreign/authors_epoch_2.pt", config=fx.REF / "foreign/mini-rn.json", device="cpu")
        with self.assertRaisesRegex(ValueError, "another model"):
            cloob.Index.open(self.folder / "new.index", other).search(image=fx.image(0))


class Training(WithModel):
    def setUp(self) -> None:
        rows = ["filepath\ttitle"]
        for i in range(16):
            path = self.folder / f"t{i}.png"
            path.write_bytes(fx.png(fx.image(i, 32, 32)))
            rows.append(f"{path}\t{fx.CAPTIONS[i % 4]}")
        self.pairs = self.folder / "pairs.tsv"
        self.pairs.write_text("\n".join(rows) + "\n")
        self.options: dict[str, Any] = dict(model="tiny", batch_size=8, epochs=2, logs=self.folder / "logs", vocab=self.world.vocab, device="cpu",
                                            report_to="none", workers=1, lr=1e-3, warmup=0)

    def test_callbacks_and_the_checkpoint(self) -> None:
        steps: list[cloob.Step] = []
        epochs: list[cloob.Epoch] = []
        run = cloob.train(self.pairs, name="a", on_step=steps.append, on_epoch=epochs.append, **self.options)
        self.assertEqual((run.steps, run.epochs, [s.step for s in steps], [e.epoch for e in epochs]), (4, 2, [1, 2, 3, 4], [1, 2]))
        self.assertEqual(steps[-1].loss, run.loss)
        self.assertEqual(epochs[-1].checkpoint, run.checkpoint)
        with cloob.load(run.checkpoint, device="cpu") as m:
            self.assertEqual(m.encode_text("a").shape, (m.facts.embed,))

    def test_a_loss_of_ones_own(self) -> None:
        """CLOOB's objective, called from Python, trains to the same weights' loss as the built-in one."""
        def loss(x: Any, y: Any) -> Any:
            o = cloob.objective(x, y, inv_tau=30, scale_hopfield=8)
            return o.loss, o.dx, o.dy

        same = dict(self.options, init_inv_tau=30, scale_hopfield=8, hopfield_warmup=0)
        first: list[float] = []
        cloob.train(self.pairs, name="own", loss=loss, on_step=lambda s: first.append(s.loss), **same)
        second: list[float] = []
        cloob.train(self.pairs, name="built-in", on_step=lambda s: second.append(s.loss), **same)
        np.testing.assert_allclose(first, second, rtol=1e-3)

    def test_resuming_by_name(self) -> None:
        """The settings of the run are read from its folder; the losses are those of a run without a stop."""
        whole: list[float] = []
        parts: list[float] = []
        cloob.train(self.pairs, name="whole", on_step=lambda s: whole.append(s.loss), **self.options)
        cloob.train(self.pairs, name="parts", on_step=lambda s: parts.append(s.loss) or s.step < 3, **self.options)
        run = cloob.train(resume="parts", logs=self.options["logs"], on_step=lambda s: parts.append(s.loss))
        self.assertEqual((run.steps, parts), (4, whole))
        with self.assertRaisesRegex(OSError, "absent: no such run"):
            cloob.train(resume="absent", logs=self.options["logs"])

    def test_failures_of_callbacks_are_raised(self) -> None:
        def fail(*_: Any) -> Any:
            raise ZeroDivisionError("mine")

        for what in ("on_step", "on_epoch", "loss"):
            with self.assertRaisesRegex(ZeroDivisionError, "mine"):
                cloob.train(self.pairs, name=what, **{what: fail}, **self.options)
        with self.assertRaisesRegex(ValueError, "shape"):
            cloob.train(self.pairs, name="shape", loss=lambda x, y: (0.0, x[:1], y), **self.options)
        run = cloob.train(self.pairs, name="stop", on_step=lambda s: s.step < 2, **self.options)
        self.assertEqual(run.steps, 2)
        with self.assertRaisesRegex(ValueError, 'unknown training option "no_such"'):
            cloob.train(self.pairs, no_such=1)
        with self.assertRaisesRegex(TypeError, "on_step: expected a function"):
            cloob.train(self.pairs, on_step=3)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "loss, dx, dy"):
            cloob.train(self.pairs, name="float", loss=lambda x, y: 0.0, **self.options)  # type: ignore[arg-type,return-value]
        with self.assertRaisesRegex(ValueError, "epochs"):
            cloob.train(self.pairs, epochs=-3)


class Evaluation(WithModel):
    def test_zero_shot_is_the_program(self) -> None:
        data = self.folder / "classes"
        for i, name in enumerate(["red", "blue"]):
            (data / name).mkdir(parents=True)
            for k in range(3):
                (data / name / f"{k}.png").write_bytes(fx.png(fx.image(10 * i + k)))
        got = cloob.evaluate.zero_shot(self.model, data)
        theirs = json.loads(fx.run("eval", "zeroshot", "--checkpoint", self.world.model, "--vocab", self.world.vocab, "--device", "cpu",
                                   "--json", "--data", data))
        self.assertEqual((got.top1, got.n), (theirs["top1"], theirs["n"]))
        prompts = {"s": {"classes": ["blue", "red"], "templates": ["{}", "a {}"]}, "t": {"classes": ["x"], "templates": ["{}"]}}
        self.assertEqual(cloob.evaluate.zero_shot(self.model, data, prompts, "s").n, 6)
        self.assertEqual(cloob.evaluate.zero_shot(self.model, data, templates=["{}", "a {}"]).top1,
                         cloob.evaluate.zero_shot(self.model, data, prompts, "s").top1)
        with self.assertRaisesRegex(ValueError, "set"):
            cloob.evaluate.zero_shot(self.model, data, prompts)
        with self.assertRaisesRegex(cloob.FormatError, "not a JSON file"):
            cloob.evaluate.zero_shot(self.model, data, self.world.images[0].with_name("merges.txt"))

    def test_wrong_arguments_have_clear_errors(self) -> None:
        x, y = np.eye(8, dtype=np.float32), np.arange(8) % 2
        for kind, text, call in ((ValueError, "every other training row", lambda: cloob.evaluate.probe((x, y), (x, y))),
                                 (ValueError, "'search'", lambda: cloob.evaluate.probe((x, y), (x, y), l2="best")),
                                 (ValueError, "pair", lambda: cloob.evaluate.probe(x, y)),  # type: ignore[arg-type]
                                 (TypeError, "`model`", lambda: cloob.evaluate.retrieval(["a.png"], ["a cat"]))):
            self.assertRaisesRegex(kind, text, call)

    def test_retrieval_and_probe_by_hand(self) -> None:
        x, y = fx.unit_rows(0, 30, 8), fx.unit_rows(1, 30, 8)
        scores = x @ y.T
        rank = (scores > np.diag(scores)[:, None]).sum(1)
        r = cloob.evaluate.retrieval(x, y)
        self.assertAlmostEqual(r.image_to_text.recall5, float((rank < 5).mean()), places=6)
        self.assertAlmostEqual(r.image_to_text.mean_rank, float(rank.mean() + 1), places=6)
        several = cloob.evaluate.retrieval(x[:10], y, text_image=np.arange(30) // 3)
        self.assertEqual((several.images, several.texts), (10, 30))
        p = cloob.evaluate.probe((x, np.arange(30) % 3), (x, np.arange(30) % 3), l2=1e-6)
        scores = x @ p.weight[:, :-1].T + p.weight[:, -1]
        self.assertAlmostEqual(p.test_acc, float((p.label[scores.argmax(1)] == np.arange(30) % 3).mean()), places=6)
        with self.assertRaisesRegex(ValueError, "test y"):
            cloob.evaluate.probe((x, np.arange(30)), (x, np.arange(3)))


class Processes(WithModel):
    def _rows(self, method: str) -> Any:
        context: Any = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=_rows_in_child, args=(self.model, fx.CAPTIONS, queue))
        child.start()
        try:
            return queue.get(timeout=60)
        finally:
            child.join(10)
            if child.is_alive():
                child.kill()

    def test_fork_and_spawn(self) -> None:
        """The parent's threads have run before, so a child that waits for them would hang."""
        want = (self.model.encode_text(fx.CAPTIONS), self.model.encode_image([fx.image(0)] * 40), cloob.hopfield(np.eye(64), np.eye(64)))
        for method in ("fork", "spawn", "fork"):
            for got, w in zip(self._rows(method), want):
                np.testing.assert_array_equal(got, w, method)
        np.testing.assert_array_equal(self.model.encode_text(fx.CAPTIONS), want[0])  # the parent continues

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_a_fork_during_another_threads_call_is_an_error(self) -> None:
        with self.model._context.lock:
            held = threading.Thread(target=self._fork_and_use)
            held.start()
            held.join(60)
        self.assertEqual(self.answer, "load it again")

    def _fork_and_use(self) -> None:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.model.encode_text("a")
                os.write(write, b"worked")
            except cloob.DeviceError as e:
                os.write(write, str(e).split("; ")[1][:13].encode())
            finally:
                os._exit(0)
        os.close(write)
        self.answer = os.read(read, 100).decode()
        os.waitpid(pid, 0)

    def test_pickles(self) -> None:
        here = os.getcwd()
        again = pickle.loads(pickle.dumps(self.model))
        self.assertEqual(again.facts, self.model.facts)
        np.testing.assert_array_equal(again.encode_text(fx.CAPTIONS), self.model.encode_text(fx.CAPTIONS))
        os.chdir(self.folder)
        try:
            relative = pickle.dumps(cloob.load("model.safetensors", vocab="merges.txt", device="cpu"))
        finally:
            os.chdir(here)
        self.assertTrue(pickle.loads(relative).facts.has_tokenizer)
        t = pickle.loads(pickle.dumps(cloob.Tokenizer(self.world.vocab)))
        self.assertEqual(t.encode("a red"), cloob.Tokenizer(self.world.vocab).encode("a red"))

    def test_other_threads_run_during_a_call(self) -> None:
        counted, stop = [0], threading.Event()

        def count() -> None:
            while not stop.is_set():
                counted[0] += 1
                time.sleep(0.0005)

        thread = threading.Thread(target=count)
        thread.start()
        before, began = counted[0], time.monotonic()
        self.model.encode_image([fx.image(0, 600, 800)] * 128)
        took, meanwhile = time.monotonic() - began, counted[0] - before
        stop.set(), thread.join()
        self.assertGreater(meanwhile, 2, f"{took:.3f} s")  # with the interpreter lock held it would stay at 0 or 1


class Documentation(WithModel):
    def test_examples_in_docstrings_run(self) -> None:
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            for name, source in (("cat.png", 0), ("dog.png", 1)):
                shutil.copy(self.world.images[source], name)
            for i in range(4):
                Path(f"classes/{'red' if i % 2 else 'blue'}").mkdir(parents=True, exist_ok=True)
                shutil.copy(self.world.images[0], f"classes/{'red' if i % 2 else 'blue'}/{i}.png")
            Path("pairs.tsv").write_text("filepath\ttitle\n" + "".join(f"{n}.png\ta {n}\n" for n in ("cat", "dog") * 4))
            names = {"cloob": cloob, "model": self.model, "numpy": np, "os": os}
            tried = 0
            for module in ("_model", "_index", "_train", "_objective", "_tokenizer", "evaluate"):
                result = doctest.testmod(importlib.import_module(f"cloob.{module}"), extraglobs=names)
                self.assertEqual(result.failed, 0, module)
                tried += result.attempted
            self.assertGreater(tried, 15)
        finally:
            os.chdir(here)

    def test_what_is_raised_is_exported(self) -> None:
        from cloob import _library

        for kind in _library._KINDS:
            self.assertIs(getattr(cloob, kind.__name__), kind)
            self.assertIn(kind.__name__, cloob.__all__)
        self.assertIs(cloob.CloobError, cloob.Error)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types(self) -> None:
        code = ("import cloob\nm = cloob.load('x')\nrows, ok = m.encode_image(['a', b'b'], errors='skip')\n"
                "one = m.encode_image('a')\nprint(one.shape, rows.shape, ok.any())\n")
        path = self.folder / "user.py"
        path.write_text(code)
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(self.folder / "cache"), "--python-version", "3.11",
                               str(path), str(fx.SOURCE / "python/cloob")], capture_output=True, text=True,
                              env={**os.environ, "MYPYPATH": str(fx.SOURCE / "python")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
