#!/usr/bin/env python3
"""`cloob eval suite` compared with `clip_benchmark` from PyPI: the same images, prompts and random weights, number by number, and how long each takes.

    bench/peers/clip_benchmark_peer.py --classes DIR --captions TSV --images DIR --vocab MERGES.gz [--work DIR] [--model ViT-B-32] [--cloob build/cloob]

--classes: class folders. --captions: TSV of filepath and title, paths below --images. MERGES.gz is CLIP's vocabulary. Writes three data sets in
CLIP_benchmark's webdataset layout to the work folder: one label per image (lossless WebP), several labels (npy), captions (JPEG as it is).
The set with one label also has training images: a linear probe is timed on it, not compared, as clip_benchmark minimises by ten epochs of AdamW. It asks for
a GPU; here it runs on the CPU, with that line and the calls of .cuda() taken out. Needs clip_benchmark (with numpy below 2.4), open_clip_torch, webdataset. Exit code 1 when a number differs by 5e-5 or more."""
import argparse, collections, csv, io, json, os, pathlib, random, resource, shutil, subprocess, sys, tarfile, tempfile, time

a = argparse.ArgumentParser()
a.add_argument("--classes", required=True)
a.add_argument("--captions", required=True)
a.add_argument("--images", required=True)
a.add_argument("--vocab", required=True)
a.add_argument("--work")
a.add_argument("--model", default="ViT-B-32")
a.add_argument("--most", type=int, default=400, help="images of each data set")
a.add_argument("--cloob", default=str(pathlib.Path(__file__).resolve().parents[2] / "build" / "cloob"))
a.add_argument("--only", nargs="*", default=["one", "several", "captions", "probe"])
a.add_argument("--repeat", type=int, default=1, help="runs of each program on each data set; the median is shown")
args = a.parse_args()
work = pathlib.Path(args.work or tempfile.mkdtemp(prefix="clip-benchmark-"))
work.mkdir(exist_ok=True)
rng = random.Random(0)


def shards(folder, samples, split="test"):
    """samples: lists of (suffix, bytes). Four shards: clip_benchmark needs one for each of its workers."""
    each = (len(samples) + 3) // 4
    (folder / split).mkdir(parents=True)
    count = (len(samples) + each - 1) // each
    for k in range(count):
        with tarfile.open(folder / split / f"{k}.tar", "w") as tar:
            for i, members in enumerate(samples[k * each:(k + 1) * each], k * each):
                for suffix, data in members:
                    info = tarfile.TarInfo(f"s{i:07d}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    (folder / split / "nshards.txt").write_text(f"{count}\n")


def webp(path):
    from PIL import Image
    out = io.BytesIO()
    Image.open(path).convert("RGB").save(out, "webp", lossless=True)
    return out.getvalue()


def make_data():
    import numpy as np
    root = pathlib.Path(args.classes)
    classes = sorted(p.name for p in root.iterdir() if p.is_dir())
    files = [(f, i) for i, c in enumerate(classes) for f in sorted((root / c).iterdir())]
    rng.shuffle(files)
    shards(work / "data" / "one", [[("webp", webp(f)), ("cls", str(label).encode())] for f, label in files[args.most:2 * args.most]], "train")
    files = files[:args.most]
    names = "".join(c.replace("_", " ") + "\n" for c in classes)
    for name in "one", "several":
        samples = []
        for f, label in files:
            target = np.array([int(c == label or rng.random() < 0.2) for c in range(len(classes))])
            raw = io.BytesIO()
            np.save(raw, target)
            samples.append([("webp", webp(f)), ("cls", str(label).encode()) if name == "one" else ("npy", raw.getvalue())])
        shards(work / "data" / name, samples)
        (work / "data" / name / "classnames.txt").write_text(names)
        (work / "data" / name / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na picture of the {c}.\n")
    (work / "data" / "several" / "dataset_type.txt").write_text("multilabel\n")
    by = collections.defaultdict(list)
    with open(args.captions) as f:
        for row in csv.DictReader(f, delimiter="\t"):
            by[row["filepath"]].append(row["title"])
    samples = [[("jpg", (pathlib.Path(args.images) / p).read_bytes()), ("txt", "\n".join(t).encode())] for p, t in list(by.items())[:args.most]]
    shards(work / "data" / "captions", samples)
    (work / "data" / "captions" / "dataset_type.txt").write_text("retrieval\n")


def make_weights():
    import torch, open_clip
    from safetensors.torch import save_file
    torch.manual_seed(0)
    model = open_clip.create_model(args.model, pretrained=None).eval()
    with torch.no_grad():  # gains, biases and a spread of embeddings as trained models have them
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1) if p.ndim == 1 else p.mul_(1.5)
    (work / "weights").mkdir()
    torch.save(model.state_dict(), work / "weights" / "open_clip_model.pt")
    config = dict(model_cfg=open_clip.get_model_config(args.model),
                  preprocess_cfg=dict(mean=list(open_clip.OPENAI_DATASET_MEAN), std=list(open_clip.OPENAI_DATASET_STD)))
    folder = work / "weights" / "folder"
    folder.mkdir()
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    subprocess.run([args.cloob, "convert", folder, work / "weights" / "ours.safetensors", "--quiet"], check=True)


def timed(command, **more):
    times = []
    for _ in range(args.repeat):
        start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        r = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append((time.perf_counter() - start, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime))
        if r.returncode:
            sys.exit(f"{command[0]} failed: {r.stderr[-2000:]}")
    return sorted(times)[len(times) // 2], r.stdout


ON_CPU = """
import inspect, sys, clip_benchmark.metrics.linear_probe as m
exec(compile(inspect.getsource(m).replace("assert device == 'cuda'", "pass").replace(".cuda()", ""), m.__file__, "exec"), m.__dict__)
import clip_benchmark.cli
sys.exit(clip_benchmark.cli.main())
"""


def peer(name):
    task = {"captions": "zeroshot_retrieval", "probe": "linear_probe"}.get(name, "zeroshot_classification")
    data = "one" if name == "probe" else name
    out = work / f"peer_{name}.json"
    more = ["--train_split", "train", "--feature_root", tempfile.mkdtemp(dir=work), "--fewshot_k", "-1"] if name == "probe" else []
    seconds, _ = timed([sys.executable, "-c", ON_CPU, "eval", "--dataset", f"wds/{data}", "--dataset_root", work / "data" / data, "--model", args.model, *more,
                        "--pretrained", work / "weights" / "open_clip_model.pt", "--task", task, "--no_amp", "--num_workers", "2", "--batch_size", "64",
                        "--recall_k", "1", "5", "10", "--output", out, "--quiet"], env=dict(os.environ, CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1"))
    return json.loads(out.read_text())["metrics"], seconds


def ours(name, *more):
    seconds, text = timed([args.cloob, "benchmark", "--checkpoint", work / "weights" / "ours.safetensors", "--datasets", work / "data" / ("one" if name == "probe" else name), "--out", work / "ours",
                           *(["--task", "linear_probe"] if name == "probe" else []),
                           "--vocab", args.vocab, "--precision", "fp32", "--device", "cpu", "--json", "--quiet", "--again", *more])
    return json.loads(text)["metrics"], seconds


if not (work / "data").exists():
    make_data()
if not (work / "weights").exists():
    make_weights()
worst = 0
print("| data set | metric | clip_benchmark | cloob |\n|---|---|---:|---:|")
lines = []
for name in args.only:
    (a_, ta), (b_, tb), (_, tc) = peer(name), ours(name), ours(name, "--no-invariant", "--batch", "64")
    for key, value in a_.items():
        got = b_.get(key)
        if name == "probe":
            if key.startswith("lp_"):
                print(f"| {name} | {key}, not compared | {value:.6f} | {got:.6f} |")
            continue
        if value != value:  # acc5 of fewer than five classes
            got = "-" if got is None else got
            print(f"| {name} | {key} | - | {got} |")
            continue
        worst = max(worst, abs(value - got))
        print(f"| {name} | {key} | {value:.6f} | {got:.6f} |")
    lines.append(f"| {name} | " + " | ".join(f"{t[k]:.1f} s" for k in (0, 1) for t in (ta, tb, tc)) + f" | {ta[0] / tb[0]:.1f} | {ta[1] / tb[1]:.1f} |")
    print(lines[-1], file=sys.stderr, flush=True)
print("\n| data set | clip_benchmark, wall | cloob | cloob --no-invariant | clip_benchmark, CPU | cloob | cloob --no-invariant | times as fast, wall | CPU |")
print("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n" + "\n".join(lines))
print(f"\nlargest difference {worst:.2g}")
if not args.work:
    shutil.rmtree(work)
sys.exit(worst >= 5e-5)
