#!/bin/sh
# The protocol of docs/measurements/protocol.md from one command: worlds, searches, choices, one test, tables.
#
#     scripts/findings.sh synthetic OUT              our own world, 4 to 120 passes over the pairs
#     scripts/findings.sh pairs OUT DATA NAME        your own pairs: DATA/train.tsv, val.tsv, test.tsv (filepath, title),
#                                                    and class folders DATA/val-classes/SET, DATA/test-classes/SET, if any.
#                                                    Without val-classes the choice is by retrieval. NAME: of the results
#     scripts/findings.sh rule OUT                   the rule for the scale of retrieval on a world it was not found on, small
#                                                    enough for one CPU core: 48 runs of about 16 s
#
# By environment, with the protocol's values as defaults: METHODS, PASSES, TRIALS, SEEDS, STEPS, BATCH, JOBS, DEVICE, PRECISION, MODEL, SIZE, RATES,
# WORKERS, VOCAB, CLOOB. Stopped at any time, the same command continues. OUT/data/*.jsonl has a line per run, OUT/findings.md the tables.
set -eu
usage='usage: scripts/findings.sh synthetic|pairs|rule OUT [DATA NAME]'
what=${1:?$usage}
out=${2:?$usage}
cloob=${CLOOB:-$(dirname "$0")/../build/cloob}
passes=${PASSES:-30 4 120 60 15}   # the middle first: a run that is cut short has the most useful part
trials=${TRIALS:-12} seeds=${SEEDS:-5} steps=${STEPS:-960} batch=${BATCH:-128} jobs=${JOBS:-16}
device=${DEVICE:-auto} model=${MODEL:-tiny} size=${SIZE:-32}
precision=${PRECISION:-fp32}
methods=${METHODS:-clip,infoloob,infonce-hopfield,cloob}
mkdir -p "$out/data"

# Even lines to one file, odd ones to another, both with the heading.
split_pairs() { awk -F'\t' 'NR == 1 || NR % 2 == 0' "$1" >"$2"; awk 'NR == 1 || NR % 2 == 1' "$1" >"$3"; }

# Images of every class folder, in turn to validation and test.
split_classes() {
    for class in "$1"/classes/*/*/; do
        name=${class#"$1"/classes/}
        mkdir -p "$1/val-classes/$name" "$1/test-classes/$name"
        k=0
        for image in "$class"*; do
            k=$((k + 1))
            if [ $((k % 2)) = 0 ]; then ln -f "$image" "$1/val-classes/$name"; else ln -f "$image" "$1/test-classes/$name"; fi
        done
    done
}

# The search for one data set: the same random settings for every method, the choice on validation data, fresh seeds, one test.
search() { # NAME TRAIN EPOCHS FOLDER [MORE OPTIONS]
    name=$1 train=$2 epochs=$3 data=$4
    shift 4
    select=image_to_text_R@10
    [ ! -e "$data/prompts.json" ] || set -- "$@" --prompts "$data/prompts.json"
    [ ! -d "$data/test-classes" ] || set -- "$@" --test-zeroshot "$data"/test-classes/*
    if [ -d "$data/val-classes" ]; then
        set -- "$@" --zeroshot "$data"/val-classes/*
        [ "$(ls "$data/val-classes" | wc -l)" -gt 1 ] && select=zeroshot/average || select=zeroshot/$(ls "$data/val-classes")
    fi
    "$cloob" sweep --train-data "$train" --val-data "$data/val.tsv" --test-data "$data/test.tsv" --name "$name" --logs "$out/runs" \
        --grid "method=$methods" --grid "lr=${RATES:-5e-4,1e-3,2e-3}" --grid init_inv_tau=10,15,30,60 \
        --grid learnable_inv_tau=False,True --grid scale_hopfield=8,14.3,30,50 --grid wd=0.02,0.1,0.5 \
        --random "$trials" --final-seeds "$seeds" --select "$select" --jobs "$jobs" --device "$device" --precision "$precision" \
        --model "$model" --force-image-size "$size" --batch-size "$batch" --epochs "$epochs" --schedule-steps "$steps" \
        --warmup $((steps / 20)) --hopfield-warmup $((steps * 3 / 20)) --vocab "$data/vocab.txt" --workers "${WORKERS:-0}" \
        --val-frequency 1000000 --log-every-n-steps 1000 --report-to none --quiet "$@" >"$out/$name.txt"
    cp "$out/runs/$name/results.jsonl" "$out/data/$name.jsonl"
    {
        cat "$out/runs/$name/sweep.md"
        printf '\n## Tests, corrected by Holm\n\n'
        "$cloob" compare "$out/data/$name.jsonl" --by method --where stage=final --format markdown |
            grep -E '^\| (metric|test/)|^\|---|^$' || true
        echo
    } >"$out/data/$name.md"
}

collect() { cat "$out"/data/*.md >"$out/findings.md"; echo "$out/findings.md"; }

# A world with validation and test data and a vocabulary, and its first pairs for each number of passes: pairs times passes is
# steps times batch, so every level has the same budget of steps.
draw_world() { # WORLD SEED PER_CLASS
    world=$1 most=0
    for p in $passes; do n=$((steps * batch / p)); [ $n -le $most ] || most=$n; done
    if [ ! -e "$world/ready" ]; then
        "$cloob" synth --out "$world" --count $most --val-count 1000 --per-class "$3" --size "$size" --seed "$2" --quiet >"$out/synth.txt"
        mv "$world/val.tsv" "$world/held-out.tsv"
        split_pairs "$world/held-out.tsv" "$world/val.tsv" "$world/test.tsv"
        split_classes "$world"
        tail -n +2 "$world/train.tsv" | cut -f2 >"$world/captions.txt"
        "$cloob" tokenizer train --input "$world/captions.txt" --size 1024 --out "$world/vocab.txt" --quiet >"$out/vocab.txt"
        touch "$world/ready"
    fi
    for p in $passes; do head -n $((steps * batch / p + 1)) "$world/train.tsv" >"$world/train-$p.tsv"; done
}

synthetic() {
    draw_world "$out/world" 7 100
    for p in $passes; do
        search "$(printf 'synthetic-%03d' "$p")" "$world/train-$p.tsv" "$p" "$world"
        collect
    done
}

# The rule for the scale: one run each of InfoNCE and InfoLOOB decides on validation data; five fresh seeds of both, and of CLOOB at
# scales 8 and 50, are tested. Everything else is equal.
rule_arms() { # NAME PASSES OPTIONS: the arms as a grid
    name=$1 p=$2
    shift 2
    "$cloob" sweep --train-data "$world/train-$p.tsv" --val-data "$world/val.tsv" --test-data "$world/test.tsv" --name "$name" --logs "$out/runs" \
        --zeroshot "$world"/val-classes/* --test-zeroshot "$world"/test-classes/* --prompts "$world/prompts.json" --vocab "$world/vocab.txt" \
        "$@" --final-seeds "$seeds" --select zeroshot/average --jobs "$jobs" --device cpu --threads 1 --workers 0 \
        --model "$out/small-rn.json" --batch-size "$batch" --epochs "$p" --schedule-steps "$steps" --warmup $((steps / 20)) \
        --hopfield-warmup $((steps * 3 / 20)) --lr 2e-3 --init-inv-tau 15 --wd 0.1 --save-frequency 0 --val-frequency 1000000 \
        --log-every-n-steps 1000 --report-to none --quiet >"$out/$name.txt"
}

rule() {
    passes=${PASSES:-120 10} steps=${STEPS:-480} batch=${BATCH:-64} jobs=${JOBS:-1}
    cat >"$out/small-rn.json" <<'END'
{"embed_dim": 64, "quick_gelu": true,
 "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": null},
 "text_cfg": {"context_length": 24, "vocab_size": 1024, "width": 64, "heads": 2, "layers": 1}}
END
    draw_world "$out/rule-world" 43 80
    for p in $passes; do
        level=$(printf 'rule-%03d' "$p")
        rule_arms "$level-plain" "$p" --grid method=clip,infoloob
        rule_arms "$level-cloob" "$p" --grid method=cloob --grid scale_hopfield=8,50 --by scale_hopfield
        cat "$out/runs/$level-plain/results.jsonl" "$out/runs/$level-cloob/results.jsonl" >"$out/data/$level.jsonl"
        "$cloob" compare "$out/data/$level.jsonl" --by group --where stage=final --format markdown >"$out/data/$level.md"
    done
    collect
}

pairs() { # DATA NAME
    usage='usage: scripts/findings.sh pairs OUT DATA NAME'
    data=${1:?$usage} name=${2:?$usage}
    if [ ! -e "$data/vocab.txt" ]; then
        tail -n +2 "$data/train.tsv" | cut -f2 >"$out/captions.txt"
        "$cloob" tokenizer train --input "$out/captions.txt" --size "${VOCAB:-4096}" --out "$data/vocab.txt" --quiet >"$out/vocab.txt"
    fi
    images=$(tail -n +2 "$data/train.tsv" | cut -f1 | sort -u | wc -l)
    search "$name" "$data/train.tsv" $((steps / (images / batch) + 1)) "$data" --one-caption-per-image
    collect
}

case $what in
synthetic) synthetic ;;
pairs) pairs "${3:-}" "${4:-}" ;;
rule) rule ;;
*) echo "$usage" >&2; exit 2 ;;
esac
