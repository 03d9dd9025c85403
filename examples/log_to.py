#!/usr/bin/env python3
"""Passes the metrics of a run on to Weights & Biases or MLflow.

    cloob train ... --log-to 'pipe:python3 log_to.py wandb PROJECT'
    cloob train ... --log-to 'pipe:python3 log_to.py mlflow EXPERIMENT'

`cloob train --log-to` writes one JSON object per line: "start" with the settings and the provenance of the run, "step" for
every logged step, "evaluation" with the metrics of an epoch, "end". A tracker needs no more than these; another one is one
more class with the same four functions. Only numbers of cloob are read; nothing in a line is executed.

Where a tracker writes is set by its own variables: WANDB_MODE=offline, MLFLOW_TRACKING_URI=sqlite:///mlflow.db."""
import json
import os
import signal
import sys


class Wandb:
    def __init__(self, project):
        import wandb
        self.wandb, self.project, self.run = wandb, project, None

    def start(self, name, settings):
        self.run = self.wandb.init(project=self.project, name=name, config=settings)

    def log(self, prefix, metrics, step):
        self.run.log({f"{prefix}/{key}": value for key, value in metrics.items()}, step=step)

    def end(self, done):
        self.run.finish(exit_code=0 if done else 1)


class Mlflow:
    def __init__(self, experiment):
        import mlflow
        self.mlflow = mlflow
        mlflow.set_experiment(experiment)

    def start(self, name, settings):
        self.mlflow.start_run(run_name=name)
        self.mlflow.log_params({key: str(value)[:500] for key, value in settings.items() if value is not None})

    def log(self, prefix, metrics, step):  # an @ is not allowed in its names
        self.mlflow.log_metrics({f"{prefix}/{key.replace('@', '_at_')}": value for key, value in metrics.items()}, step=step)

    def end(self, done):
        self.mlflow.end_run("FINISHED" if done else "FAILED")


TRACKERS = {"wandb": Wandb, "mlflow": Mlflow}


def numbers(event):
    return {key: value for key, value in event.items()
            if key not in ("event", "step", "epoch") and isinstance(value, (int, float)) and not isinstance(value, bool)}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in TRACKERS:
        sys.exit(__doc__)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for cloob, which ends the run and says so in a last line
    try:
        tracker = TRACKERS[sys.argv[1]](sys.argv[2])
    except Exception as e:  # not installed, or its store cannot be opened
        sys.exit(f"log_to.py: {sys.argv[1]}: {e}")
    begun = ended = False
    for line in sys.stdin:
        event = json.loads(line)
        if event["event"] == "start":
            begun = True
            tracker.start(os.path.basename(event["run"]), {**event["settings"], **{"cloob_" + k: v for k, v in event["provenance"].items()}})
        elif event["event"] == "step":
            tracker.log("train", numbers(event), event["step"])
        elif event["event"] == "evaluation":
            tracker.log("val", numbers(event["metrics"]), event["step"])
        elif event["event"] == "end":
            ended = True
            tracker.end(event["status"] == "done")
    if begun and not ended:  # cloob was killed
        tracker.end(False)


if __name__ == "__main__":
    main()
