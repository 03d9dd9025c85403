"""ONNX Runtime's speed on one tower of a CLIP-like model: what embeddings on a GPU are compared with.

    python3 onnx_embed.py --arch RN50 --batch 256 [--text] [--opset 23] [--nhwc] [--graph] [--device cpu]

Exports the tower with PyTorch in fp16 (fp32 on a CPU), then times a session with inputs and outputs that stay on the
device: the median of --repeats runs, each until its result is there. --opset 23 keeps attention as one operator, which
ONNX Runtime may fuse; below it attention is exported as two GEMMs and a softmax. --nhwc asks for channels last,
--graph for CUDA graphs. Prints one JSON line, with the largest difference from PyTorch in fp32. Needs torch, onnx and
onnxruntime-gpu.
"""
import argparse, json, os, tempfile, time
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
import cloob_ref as R
import peer_step


class Tower(nn.Module):
    """One tower with unit rows, its tensors registered as parameters."""
    def __init__(self, cfg, text):
        super().__init__()
        self.cfg, self.text, self.names = cfg, text, {}
        for name, shape in R.shapes(cfg).items():
            if name.startswith("visual.") == text: continue
            key = name.replace(".", "__")
            self.register_buffer(key, R.weight(name, shape).float())
            self.names[name] = key

    def forward(self, x):
        p = {k: getattr(self, v) for k, v in self.names.items()}
        bn = lambda n, t: F.batch_norm(t, p[n + ".running_mean"], p[n + ".running_var"], p[n + ".weight"], p[n + ".bias"], False, 0.1, 1e-5)
        y = R.encode_text(p, self.cfg, x) if self.text else R.encode_image(p, self.cfg, x, False, bn)
        return F.normalize(y, dim=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--arch", default="RN50"); ap.add_argument("--batch", type=int, default=256); ap.add_argument("--text", action="store_true")
    ap.add_argument("--opset", type=int, default=17); ap.add_argument("--nhwc", action="store_true"); ap.add_argument("--graph", action="store_true")
    ap.add_argument("--device", default="cuda", choices=["cuda", "cpu"]); ap.add_argument("--repeats", type=int, default=20)
    a = ap.parse_args(); cuda = a.device == "cuda"
    import onnxruntime as ort
    cfg, n = R.ARCH[a.arch], a.batch
    torch.manual_seed(0)
    m = Tower(cfg, a.text).eval().to(a.device)
    x = torch.randint(1, cfg["vocab"] - 3, (n, cfg["ctx"])) if a.text else torch.randn(n, 3, cfg["res"], cfg["res"])
    if a.text: x[:, cfg["ctx"] // 2] = cfg["vocab"] - 1
    x = x.to(a.device)
    with torch.no_grad(): want = m(x).float().cpu().numpy()
    if cuda: m = m.half(); x = x if a.text else x.half()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = os.path.join(folder, "tower.onnx")
        torch.onnx.export(m, (x,), path, input_names=["x"], output_names=["y"], opset_version=a.opset, dynamo=a.opset > 20)
        options = ort.SessionOptions(); options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        if cuda: providers = [("CUDAExecutionProvider", {"prefer_nhwc": str(int(a.nhwc)), "enable_cuda_graph": str(int(a.graph)), "cudnn_conv_use_max_workspace": "1"})]
        s = ort.InferenceSession(path, options, providers=providers)
    if cuda and s.get_providers()[0] != "CUDAExecutionProvider": raise SystemExit("ONNX Runtime does not use the GPU")
    given = ort.OrtValue.ortvalue_from_numpy(x.cpu().numpy(), a.device, 0)
    del m, x
    if cuda: torch.cuda.empty_cache()
    made = ort.OrtValue.ortvalue_from_shape_and_type([n, cfg["embed"]], np.float16 if cuda else np.float32, a.device, 0)
    io = s.io_binding(); io.bind_ortvalue_input("x", given); io.bind_ortvalue_output("y", made)
    times = []
    for i in range(a.repeats + 5):
        t = time.perf_counter(); s.run_with_iobinding(io); times.append((time.perf_counter() - t) * 1e3)
    ms = sorted(times[5:])[a.repeats // 2]
    off = float(np.abs(made.numpy().astype(np.float32) - want).max())
    print(json.dumps(dict(what="embed", onnxruntime=ort.__version__, device=a.device, dtype="fp16" if cuda else "fp32", mode="opset %d%s%s" % (a.opset, ", nhwc" if a.nhwc else "", ", graph" if a.graph else ""),
                          text=a.text, arch=a.arch, n=n, ms=round(ms, 3), per_s=round(n / ms * 1e3, 1), largest_difference=round(off, 6))))


if __name__ == "__main__":
    main()
