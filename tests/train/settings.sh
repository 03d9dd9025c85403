#!/bin/bash
# Settings and metrics of a run in files: --settings, settings.json, provenance.jsonl, --log-to, --keep-best, --early-stop, and the
# example that passes metrics on to trackers. Usage: settings.sh CLOOB EXAMPLES
examples=$(realpath "$2")
. "$(dirname "$0")/../expect_error.sh"
small=(--dataset-type synthetic --train-num-samples 32 --val-data synthetic --val-num-samples 12 --model tiny-vit --vocab-size 540
    --batch-size 8 --warmup 2 --workers 0 --device cpu --report-to none)
train() { "$cloob" train "$@" --threads 1 --quiet > out 2> err || { echo "FAIL: train $*: $(cat err)"; exit 1; }; }
fail() { echo "FAIL: $*"; exit 1; }

# A run repeats from its own settings, under a name of its own; what differs is what was given.
train "${small[@]}" --name a --epochs 2 --lr 2e-3 --aug-cfg gray_scale_prob=0.1 --method clip --learnable-inv-tau
train --settings logs/a/settings.json --name b
python3 - <<'PY' || fail "settings.json of the repeated run"
import json
a, b = (json.load(open(f"logs/{n}/settings.json")) for n in "ab")
assert a == b, {k: (a[k], b[k]) for k in a if a[k] != b.get(k)}
assert a["lr"] == 0.002 and a["aug_cfg"] == ["gray_scale_prob=0.1"] and a["learnable_inv_tau"] is True and a["method"] == "clip", a
assert not {"name", "resume", "max_steps"} & set(a)
p = [json.loads(line) for line in open("logs/a/provenance.jsonl")]
assert len(p) == 1 and p[0]["command"][1] == "train" and p[0]["host"] and p[0]["commit"] and len(p[0]["train_data_digest"]) == 16, p
q = json.loads(open("logs/b/provenance.jsonl").readline())
assert q["train_data_digest"] == p[0]["train_data_digest"] != p[0]["val_data_digest"]
PY
tensors() { python3 -c 'import sys; b = open(sys.argv[1], "rb").read(); sys.stdout.buffer.write(b[8 + int.from_bytes(b[:8], "little"):])' "$1"; }
cmp <(tensors logs/a/checkpoints/epoch_2.safetensors) <(tensors logs/b/checkpoints/epoch_2.safetensors) || fail "the repeated run has other weights"
train --settings logs/a/settings.json --name c --lr 1e-3 --epochs 1
grep -qx 'lr: 0.001' logs/c/params.txt && grep -qx 'epochs: 1' logs/c/params.txt && grep -qx 'method: clip' logs/c/params.txt || fail "flags do not override a file"
train --resume c --epochs 2
[ "$(wc -l < logs/c/provenance.jsonl)" = 2 ] || fail "a resumed run adds a line of provenance"
echo '{"preset": "small", "epochs": 1, "model": "tiny-vit"}' > p.json
train --settings p.json "${small[@]}" --name d
grep -qx 'init_inv_tau: 15' logs/d/params.txt && grep -qx 'epochs: 1' logs/d/params.txt || fail "a preset in a file"

# What a file cannot do.
base=(train "${small[@]}" --name x)
echo '{"train_data": "pipe:touch ran; cat x.tar", "dataset_type": "webdataset"}' > bad.json
refused 2 "is a command (pipe:)" --settings bad.json --dataset-type webdataset
[ -e ran ] && fail "a command was run from a file"
echo '{"log_to": "pipe:touch ran"}' > bad.json && refused 1 "log_to is not a setting" --settings bad.json
echo '{"lr": "fast"}' > bad.json && refused 1 "bad.json: lr must be auto, or a number" --settings bad.json
echo '{"train_data": ["pipe:touch ran"]}' > bad.json && refused 1 "bad.json: train_data must" --settings bad.json
echo '{"lr": [1]' > bad.json && refused 1 "bad.json" --settings bad.json
echo '[1]' > bad.json && refused 1 "must be a JSON object" --settings bad.json
refused 2 "leave --settings out" --settings p.json --resume a
refused 2 "--log-to" --report-to wandb
refused 2 "does not evaluate zeroshot-val-top1" --keep-best zeroshot-val-top1
refused 2 "val_loss:3" --early-stop val_loss
refused 2 "nowhere/x" --log-to nowhere/x

# Events; the best checkpoint; an end after two evaluations that are no better.
train "${small[@]}" --name e --epochs 8 --lr 0.05 --log-every-n-steps 2 --keep-best text_to_image_R@1 --early-stop val_loss:2 --log-to e.jsonl --json
python3 - <<'PY' || fail "events, best checkpoint or early stop"
import json, os
events = [json.loads(line) for line in open("e.jsonl")]
result = json.load(open("out"))
kinds = [e["event"] for e in events]
lines = [json.loads(line) for line in open("logs/e/checkpoints/results.jsonl")]
assert kinds[0] == "start" and kinds[-1] == "end" and events[-1]["status"] == "done", kinds
assert [e["metrics"] for e in events if e["event"] == "evaluation"] == lines
assert result["metrics"] == lines[-1], result
assert [e["step"] for e in events if e["event"] == "step"] == list(range(2, 4 * len(lines) + 1, 2))
losses = [line["val_loss"] for line in lines]
best = losses.index(min(losses))
assert len(lines) == best + 3 < 8, losses  # two more, then the end
recall = [line["text_to_image_R@1"] for line in lines]
top = recall.index(max(recall)) + 1
assert os.path.samefile("logs/e/checkpoints/best.safetensors", f"logs/e/checkpoints/epoch_{top}.safetensors")
PY
train --resume e
grep -q 'val_loss has not improved in 2 evaluations' logs/e/out.log && [ "$(wc -l < logs/e/checkpoints/results.jsonl)" = "$(grep -c '"evaluation"' e.jsonl)" ] ||
    fail "an early stop is forgotten by --resume"

# Norms of layers continue when the image size changes, which makes new parameters.
train "${small[@]}" --name stages --epochs 2 --log-every-n-steps 1 --log-layers --image-size-schedule 32,64@2
[ "$(cut -f1 logs/stages/layers.tsv | sort -nu | tail -1)" = "$(tail -1 logs/stages/metrics.tsv | cut -f1)" ] || fail "norms of layers after a change of the image size"

# Norms of layers are those of the checkpoint and of its difference from the one before; embeddings are the validation pairs'.
train "${small[@]}" --name l --epochs 2 --log-every-n-steps 1 --log-layers --save-embeddings --grad-clip-norm 1e9
python3 - <<'PY' || fail "norms of layers, or embeddings"
import json, struct
def read(path):
    b = open(path, "rb").read()
    n = int.from_bytes(b[:8], "little")
    head = json.loads(b[8:8 + n])
    return {k: (v["shape"], struct.unpack("<%df" % ((v["data_offsets"][1] - v["data_offsets"][0]) // 4), b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]))
            for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32"}
norm = lambda x: sum(a * a for a in x) ** 0.5
rows = [line.rstrip("\n").split("\t") for line in open("logs/l/layers.tsv")]
assert rows[0] == ["step", "parameter", "weight", "gradient", "update"]
steps = sorted({int(r[0]) for r in rows[1:]})
assert steps == list(range(1, 9)), steps
last = read("logs/l/checkpoints/epoch_2.safetensors")
mine = {r[1]: [float(x) for x in r[2:]] for r in rows[1:] if r[0] == "8"}
for name, (weight, gradient, update) in mine.items():
    assert abs(weight - norm(last[name][1])) < 1e-4 * (1 + weight), (name, weight)
    assert update >= 0 and (gradient > 0) >= (update > 1e-3 * weight)
total = sum(v[1] ** 2 for v in mine.values()) ** 0.5
log = [line.split("\t") for line in open("logs/l/metrics.tsv")]
assert abs(total - float(log[8][log[0].index("grad_norm")])) < 1e-4 * total, (total, log[8])
x = read("logs/l/embeddings/epoch_2.safetensors")
assert x["image"][0] == x["text"][0] and x["image"][0][0] == 12 and all(abs(norm(x["image"][1][i:i + x["image"][0][1]]) - 1) < 1e-5 for i in range(0, len(x["image"][1]), x["image"][0][1]))
PY

# Cycles of the learning rate end before a restart; the spectrum is compared with the first of them. --lr-scheduler under a preset.
train "${small[@]}" --name r --epochs 5 --warmup 2 --lr-scheduler cosine-restarts --restart-epochs 2 --analyze
python3 - <<'PY' || fail "cycles of the learning rate in results.jsonl"
import json
lines = [json.loads(line) for line in open("logs/r/checkpoints/results.jsonl")]
# 4 steps an epoch, restarts after 2 + 8 k: during epochs 3 and 5
assert [line["epoch"] for line in lines if line.get("cycle_end")] == [2, 4, 5], lines
first = lines[1]["image_effective_eigenvalues"]
assert all("image_effective_eigenvalues_change" not in line for line in lines[:2])
assert all(abs(line["image_effective_eigenvalues_change"] - (line["image_effective_eigenvalues"] / first - 1)) < 1e-12 for line in lines[2:])
PY
# With cycles of a fixed length an epoch of a longer run is that of a shorter one.
train "${small[@]}" --name r2 --epochs 2 --warmup 2 --lr-scheduler cosine-restarts --restart-epochs 2
cmp <(tensors logs/r/checkpoints/epoch_2.safetensors) <(tensors logs/r2/checkpoints/epoch_2.safetensors) || fail "epoch 2 of 5 is not epoch 2 of 2"
train --preset cc "${small[@]}" --name s --epochs 1 --max-steps 1 --lr-scheduler cosine --global-batch-size 0
grep -qx 'restart_epochs: 0' logs/s/params.txt && grep -qx 'lr_scheduler: cosine' logs/s/params.txt || fail "--lr-scheduler cosine under a preset with restarts"
"$cloob" train --preset cc "${small[@]}" --name s2 --epochs 1 --max-steps 1 --threads 1 2> err > out && grep -q "the paper uses CLIP's 49,408" err || fail "the note on the vocabulary"

# To stdout; to a command, through the example; a command that ends at once.
train "${small[@]}" --name f --epochs 1 --log-to -
grep -q '"event": "evaluation"' out || fail "--log-to -"
mkdir fake
cat > fake/wandb.py <<'PY'
import json
class run:
    def log(self, what, step): print(json.dumps({"log": what, "step": step}), file=open("wandb.out", "a"))
    def finish(self, exit_code): print(json.dumps({"exit": exit_code}), file=open("wandb.out", "a"))
def init(project, name, config):
    print(json.dumps({"project": project, "name": name, "lr": config["lr"], "host": config["cloob_host"]}), file=open("wandb.out", "a"))
    return run()
PY
PYTHONPATH=fake train "${small[@]}" --name g --epochs 1 --log-every-n-steps 1 --log-to "pipe:python3 '$examples/log_to.py' wandb birds"
head -1 wandb.out | grep -q '"project": "birds", "name": "g"' && grep -c '"train/loss"' wandb.out | grep -qx 4 && grep -q '"val/val_loss"' wandb.out &&
    tail -1 wandb.out | grep -qx '{"exit": 0}' || fail "the example: $(cat wandb.out)"
cat > fake/mlflow.py <<'PY'
import json
def note(*what): print(json.dumps(what), file=open("mlflow.out", "a"))
def set_experiment(name): note("experiment", name)
def start_run(run_name): note("run", run_name)
def log_params(p): note("params", p["lr"])
def log_metrics(m, step): note("metrics", sorted(m), step)
def end_run(status): note("end", status)
PY
PYTHONPATH=fake train "${small[@]}" --name m --epochs 1 --log-to "pipe:python3 '$examples/log_to.py' mlflow birds"
head -2 mlflow.out | tail -1 | grep -q '"run", "m"' && grep -q 'val/text_to_image_R_at_1' mlflow.out && tail -1 mlflow.out | grep -q FINISHED || fail "mlflow: $(cat mlflow.out)"
# Ctrl-C in a terminal reaches the example as well, SIGKILL only cloob: both times the tracker learns that the run has not ended well.
for signal in INT KILL; do
    rm mlflow.out
    PYTHONPATH=fake setsid "$cloob" train "${small[@]}" --name "m$signal" --epochs 100000 --threads 1 --quiet --log-to "pipe:python3 '$examples/log_to.py' mlflow birds" > out 2> err &
    for t in $(seq 1 300); do grep -qs metrics mlflow.out && break; sleep 0.1; done
    kill -$signal -- $([ $signal = INT ] && echo -)$!
    wait $! 2> /dev/null
    for t in $(seq 1 100); do grep -q '"end"' mlflow.out && break; sleep 0.1; done
    tail -1 mlflow.out | grep -q '"end", "FAILED"' && ! grep -q 'the command failed\|Traceback' err || fail "a run ended by SIG$signal: $(tail -1 mlflow.out; cat err)"
done
PYTHONPATH=missing train "${small[@]}" --name n --epochs 1 --log-to "pipe:python3 -S -c 'import sys; sys.path[:] = [p for p in sys.path if \"site-packages\" not in p]; sys.argv = [\"x\", \"wandb\", \"b\"]; exec(open(\"$examples/log_to.py\").read())'"
grep -q "^log_to.py: wandb: No module named" err && ! grep -q Traceback err || fail "a tracker that is not installed: $(cat err)"
train "${small[@]}" --name h --epochs 2 --log-to "pipe:exit 3"
grep -q 'warning: --log-to' err && [ -e logs/h/checkpoints/epoch_2.safetensors ] || fail "a command that fails: $(cat err)"
[ $bad = 0 ] && echo "settings and metrics of a run: $tried refusals, all as expected"
exit $bad
