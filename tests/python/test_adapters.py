"""The interfaces of other packages: scripts for open_clip with the import changed, and mteb's encoder. Skipped without them."""
from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import fixture as fx

import cloob

HAVE_OPEN_CLIP = all(importlib.util.find_spec(m) for m in ("open_clip", "torch", "PIL"))
HAVE_MTEB = all(importlib.util.find_spec(m) for m in ("mteb", "datasets", "PIL"))

CONFIG = {"model_cfg": {"embed_dim": 32, "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32},
                        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}},
          "preprocess_cfg": {"mean": [0.48, 0.45, 0.40], "std": [0.26, 0.26, 0.27], "interpolation": "bicubic", "resize_mode": "shortest"}}

# The first script of open_clip's README, with another model.
SCRIPT = """
import torch
from PIL import Image
import {package} as open_clip

model, _, preprocess = open_clip.create_model_and_transforms({model!r})
model.eval()
tokenizer = open_clip.get_tokenizer({model!r})

image = preprocess(Image.open({image!r})).unsqueeze(0)
text = tokenizer(["a diagram", "a dog", "a cat"])

with torch.no_grad():
    image_features = model.encode_image(image)
    text_features = model.encode_text(text)
    logit_scale = model(image, text)[2]
    image_features /= image_features.norm(dim=-1, keepdim=True)
    text_features /= text_features.norm(dim=-1, keepdim=True)
    text_probs = (100.0 * image_features @ text_features.T).softmax(dim=-1)

pretrained, transform = open_clip.create_model_from_pretrained({model!r})
again = pretrained.encode_image(transform(Image.open({image!r})).unsqueeze(0), normalize=True)
"""


@unittest.skipUnless(HAVE_OPEN_CLIP, "open_clip is not installed")
class OpenClip(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        import open_clip
        import torch

        cls._folder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls._folder.name)
        torch.manual_seed(0)
        cfg: Any = CONFIG["model_cfg"]
        model = open_clip.CLIP(embed_dim=cfg["embed_dim"], vision_cfg=cfg["vision_cfg"], text_cfg=cfg["text_cfg"])
        fx.write_safetensors(cls.folder / "open_clip_model.safetensors",
                             {k: v.numpy() for k, v in model.state_dict().items() if v.dtype == torch.float32})
        (cls.folder / "open_clip_config.json").write_text(json.dumps(CONFIG))
        (cls.folder / "image.png").write_bytes(fx.png(fx.image(3, 90, 120)))

    @classmethod
    def tearDownClass(cls) -> None:
        cls._folder.cleanup()

    def _run(self, package: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(SCRIPT.format(package=package, model=f"local-dir:{self.folder}", image=str(self.folder / "image.png")), names)
        return names

    def test_the_readme_script_gives_equal_numbers(self) -> None:
        theirs, ours = self._run("open_clip"), self._run("cloob.open_clip")
        np.testing.assert_array_equal(ours["text"].numpy(), theirs["text"].numpy())
        self.assertEqual(ours["text"].dtype, theirs["text"].dtype)
        for name in ("image", "image_features", "text_features", "text_probs", "logit_scale", "again"):
            self.assertEqual(ours[name].shape, theirs[name].shape, name)
            np.testing.assert_allclose(ours[name].numpy(), theirs[name].detach().numpy(), atol=1e-5, err_msg=name)

    def test_what_is_missing_says_so(self) -> None:
        import cloob.open_clip as open_clip

        model = open_clip.create_model(f"local-dir:{self.folder}")
        with self.assertRaisesRegex(NotImplementedError, "inference"):
            model.train()
        with self.assertRaisesRegex(ValueError, "pretrained"):
            open_clip.create_model("ViT-B-32")
        with self.assertRaisesRegex(NotImplementedError, "jit"):
            open_clip.create_model(f"local-dir:{self.folder}", jit=True)


@unittest.skipUnless(HAVE_MTEB, "mteb is not installed")
class Mteb(unittest.TestCase):
    def test_a_zero_shot_task_of_images_and_texts(self) -> None:
        """mteb evaluates a task of its own kind on made-up data; the accuracy is the one of our rows."""
        import mteb
        from datasets import ClassLabel, Dataset, Features, Image
        from mteb.abstasks.zeroshot_classification import AbsTaskZeroShotClassification
        from mteb.abstasks.task_metadata import TaskMetadata
        from mteb.models.models_protocols import EncoderProtocol
        from PIL import Image as Pil

        from cloob.mteb import Encoder

        world = fx.World()
        labels, pictures = ["red", "blue"], [Pil.fromarray(fx.image(i)) for i in range(6)]
        data = Dataset.from_dict({"image": pictures, "label": [0, 1] * 3}, features=Features(image=Image(), label=ClassLabel(names=labels)))

        class Task(AbsTaskZeroShotClassification):
            metadata = TaskMetadata(
                name="CloobTest", description="made up", reference=None, dataset={"path": "none/none", "revision": "0"}, type="ZeroShotClassification",
                category="i2t", modalities=["image", "text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score="accuracy", date=None,
                domains=None, task_subtypes=None, license=None, annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None)
            input_column_name, label_column_name = "image", "label"

            def load_data(self, *_: Any, **__: Any) -> None:
                self.dataset, self.data_loaded = {"test": data}, True

            def get_candidate_labels(self) -> list[str]:
                return [f"a photo of a {n}." for n in labels]

        with cloob.load(world.model, vocab=world.vocab, device="cpu") as model:
            encoder = Encoder(model)
            self.assertIsInstance(encoder, EncoderProtocol)
            result = mteb.evaluate(encoder, Task(), cache=None, overwrite_strategy="always", encode_kwargs={"batch_size": 4})
            p = model.encode_image(pictures) @ model.encode_text([f"a photo of a {n}." for n in labels]).T
            want = float((p.argmax(1) == [0, 1] * 3).mean())
        world.close()
        self.assertAlmostEqual(result.task_results[0].get_score(), want, places=6)


class WithoutPackages(unittest.TestCase):
    def test_the_encoder_takes_batches(self) -> None:
        from cloob.mteb import Encoder

        world = fx.World()
        with cloob.load(world.model, vocab=world.vocab, device="cpu") as model:
            encoder = Encoder(model)
            batches = [{"text": ["a red square"], "image": [fx.image(0)]}, {"text": ["a star"], "image": [fx.image(1)]}]
            both = model.encode_text(["a red square", "a star"]) + model.encode_image([fx.image(0), fx.image(1)])
            np.testing.assert_allclose(encoder.encode(batches), both / np.linalg.norm(both, axis=1, keepdims=True), atol=1e-6)
            np.testing.assert_array_equal(encoder.get_text_embeddings(batches), model.encode_text(["a red square", "a star"]))
            with self.assertRaisesRegex(ValueError, "audio"):
                encoder.encode([{"audio": [1]}])
        world.close()


if __name__ == "__main__":
    unittest.main()
