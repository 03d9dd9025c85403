#!/bin/bash
# Walks the n-th failure of every kind of call through whole commands. Each run must end with its result or with one line and exit code
# 1 or 2: no crash, no hang, no half-written or left-over file; and a result is the one of an undisturbed run, byte for byte. Usage:
# inject.sh CLOOB FAULTS_LIBRARY [POINTS [COMMAND...]]: at most POINTS points for a command and a kind, evenly spread from a first one by
# CLOOB_FAULT_SEED (12; 0: all of them), of the kinds in CLOOB_FAULT_KINDS (all). Prints a table.
set -u
RANDOM=${CLOOB_FAULT_SEED:-1} # which points: another seed, others
points=${3:-12}
faults=$(realpath "$2") faults_script=$(realpath "$0")
. "$(dirname "$(realpath "$0")")/../cli/fixture.sh"
export GOMP_SPINCOUNT=2000 # set, so that the program does not start itself again
ulimit -c 0
# under the address sanitizer a leak is a failure too; its library comes after that of the faults
export ASAN_OPTIONS="verify_asan_link_order=0:intercept_tls_get_addr=0:exitcode=99:allocator_may_return_null=1" LSAN_OPTIONS="suppressions=$(dirname "$faults_script")/../lsan.supp:print_suppressions=0"
mkdir few && cp $(find world/images -type f | sort | head -3) few/
head -9 world/train.tsv > few.tsv
"$cloob" search index few --checkpoint model.safetensors --out i.safetensors --quiet > /dev/null || exit 1
for group in a b; do for r in 1 2 3; do echo "{\"accuracy\": 0.$r}"; done > $group.jsonl; done
commands="train embed index convert info retrieve search compare sweep ablate benchmark average report tokenizer synth analyze sort loss preprocess prompts zeroshot texts neighbour runs sheet"
mkdir -p set/test members
k=0
for f in few/*; do
    cp "$f" members/s$k.jpg
    echo -n $((k % 2)) > members/s$k.cls
    k=$((k + 1))
done
tar -C members -cf set/test/0.tar $(ls members)
printf 'red\nblue\n' > set/classnames.txt
echo 'a {c}.' > set/zeroshot_classification_templates.txt
printf '# s\n```\nclasses = ["red", "blue"]\n\ntemplates = ["a {}."]\n```\n' > prompts.md
mkdir captioned && cp few/* captioned/ && for f in captioned/*; do echo "a red ball" > "${f%.*}.txt"; done
"$cloob" convert model.safetensors neighbour --to open_clip --quiet > /dev/null 2>&1 || exit 1
mkdir -p runs && for r in 1 2 3 4; do # finished runs of two methods
    mkdir -p runs/$r/checkpoints && echo "method: $([ $r -gt 2 ] && echo clip || echo cloob)" > runs/$r/params.txt
    echo "{\"accuracy\": 0.$r, \"epoch\": 1}" > runs/$r/checkpoints/results.jsonl
done
command -v curl > /dev/null && "$cloob" help serve > /dev/null 2>&1 && commands="$commands serve"
[ $# -gt 3 ] && commands=${*:4}
train="--train-data world/train.tsv --model tiny-rn --force-image-size 32 --vocab-size 540 --batch-size 8 --max-steps 1 --warmup 1 --workers 1 --threads 2 --device cpu --quiet --logs logs --name f"

limit=${CLOOB_FAULT_TIMEOUT:-120} # seconds; a machine may be slow
c() { timeout $limit env CLOOB_FAULT="$fault" CLOOB_FAULT_COUNT="$dir/count" LD_PRELOAD="$preload" "$cloob" "$@"; }
fault= preload=
# The server: starts, answers, ends when asked. With a fault it may refuse to start, and one request may fail; the next is answered.
ask() { # ADDRESS [ARGUMENT...]: one request; the code of the answer
    answer=$(curl -s -m $limit -o reply -w '%{http_code}' "$@") || answer=000 # broken off
    case $answer in 200 | 4?? | 5?? | 000) ;; *) lost="an answer \"$answer\"" ;; esac
}
ask_until() { # ADDRESS [ARGUMENT...]: one failure at most
    ask "$@"
    [ "$answer" = 200 ] || [ -z "$fault" ] || ask "$@"
    [ "$answer" = 200 ] || lost="$1: $answer after a failure"
}
serve() {
    : > url
    timeout $limit env CLOOB_FAULT="$fault" CLOOB_FAULT_COUNT="$dir/count" LD_PRELOAD="$preload" "$cloob" serve --checkpoint model.safetensors \
        --index i.safetensors --port 0 --threads 2 --device cpu --quiet > url & # no function: the signal is for it
    local pid=$! url= end=$((SECONDS + limit))
    while kill -0 $pid 2> /dev/null && [ -z "$url" ] && [ $SECONDS -lt $end ]; do
        sleep 0.05
        read -r url < url
    done
    lost= answer=200
    if [ -n "$url" ]; then
        ask_until "$url/v1/embeddings" -d '{"input": "a red ball"}'
        ask_until "$url/v1/image?path=$(ls few | head -1)" # a file, by sendfile
        ask_until "$url/v1/thumb?path=$(ls few | head -1)"
        ask_until "$url/"
        ask_until "$url/v1/search" -d '{"text": "a red ball"}'
    fi
    kill -TERM $pid 2> /dev/null
    wait $pid
}
run() { # NAME: one command; its outputs go to made/
    case $1 in
    train) c train $train ;;
    embed) c embed --checkpoint model.safetensors --data few.tsv --path-data world --out made/e.safetensors --workers 1 --threads 2 --quiet ;;
    index) c search index few --checkpoint model.safetensors --out made/i.safetensors --threads 2 --quiet ;;
    convert) c convert model.safetensors made/c.pt --quiet ;;
    info) c info model.safetensors ;;
    search) c search query "a red ball" --index i.safetensors --threads 2 --quiet ;;
    compare) c compare a.jsonl b.jsonl ;;
    sweep) c sweep $train --grid lr=1e-3,5e-4 --val-data few.tsv --path-data world --select clip_val_loss ;;
    ablate) c ablate $train --seeds 1 --val-data few.tsv --path-data world ;;
    benchmark) c benchmark --checkpoint model.safetensors --datasets set --out made/b --device cpu --threads 2 --quiet ;;
    average) c average model.safetensors model.safetensors --out made/v.safetensors --quiet ;;
    report) c report logs/a --out made/r.html --quiet ;;
    tokenizer) c tokenizer train --input few.tsv --size 540 --out made/v.txt --quiet ;;
    synth) c synth --out made/w --count 2 --val-count 2 --per-class 1 --size 32 --seed 1 --quiet ;;
    analyze) c analyze --input e.safetensors --out made/a --threads 2 --quiet ;;
    sort) c classify --checkpoint model.safetensors --labels red,blue --threads 2 --quiet --sort-into made/s few ;;
    loss) c loss --input e.safetensors --grad made/g.safetensors --threads 2 --quiet ;;
    preprocess) c preprocess "$image" made/p.png --size 32 --quiet ;;
    prompts) c prompts import prompts.md --out made/p.json --quiet ;;
    zeroshot) c zeroshot --checkpoint model.safetensors --data "$(ls -d world/classes/*/ | head -1)" --predictions made/z.csv --confusion made/m.csv --threads 2 --quiet ;;
    texts) c embed --checkpoint model.safetensors --data captioned --out made/t.safetensors --workers 1 --threads 2 --quiet ;;
    neighbour) c convert neighbour made/n.safetensors --quiet ;;
    runs) c compare runs --json ;;
    sheet) c search query "a red ball" --index i.safetensors --html made/s.html --threads 2 --quiet ;;
    serve) serve ;;
    retrieve) c retrieve --input e.safetensors --threads 2 --quiet ;;
    esac
}
clean() { rm -rf made logs/f; mkdir made; }
whole() { # what is there is whole, and nothing partial is left
    [ -z "$(find made logs/f -name '*.tmp*' 2> /dev/null)" ] || { echo "left over: $(find made logs/f -name '*.tmp*')"; return 1; }
    [ ! -e made/c.pt ] || cmp -s made/c.pt good/c.pt || { echo "made/c.pt is damaged"; return 1; }
    # an image that cannot be opened is left out and counted
    for f in e.safetensors v.safetensors g.safetensors v.txt p.png p.json z.csv m.csv b/benchmark.csv; do # the same for every run that reads every image
        [ $kind = open ] || [ ! -e made/$f ] || cmp -s made/$f good/$f || { echo "made/$f is another file"; return 1; }
    done
    [ ! -e made/i.safetensors ] || "$cloob" search query x --index made/i.safetensors > /dev/null 2>&1 || { echo "made/i is damaged"; return 1; }
    for f in $(find logs/f -name '*.safetensors' 2> /dev/null); do
        "$cloob" info "$f" > /dev/null 2>&1 || { echo "$f is damaged"; return 1; }
    done
}
# Nothing may be missing in silence: after exit code 0 there is what the undisturbed run gave, but for times and what holds them.
without() { grep -av '^<footer>Written' "$1"; }
same() {
    [ $kind != open ] || return 0 # an image or a run's page may be left out, with a warning
    diff -rq -x '*.html' good made || return 1
    for f in $(cd good && find . -name '*.html'); do cmp -s <(without good/$f) <(without made/$f) || { echo "made/$f is another file"; return 1; }; done
    [ ! -e logs/f ] || diff -rq -x .lock -x out.log -x provenance.jsonl -x metrics.tsv -x summary.json -x results.jsonl -x tensorboard -x '*.html' good.logs logs/f || return 1
    case $command in synth | serve) ;; *) cmp -s out good.out || { echo "prints something else"; return 1; } ;; esac # a rate, an address
}
kinds=${CLOOB_FAULT_KINDS:-alloc write sync rename thread map send open}
total=0 refused=0 passed=0
printf '%-9s %-7s %6s %7s %8s %8s\n' command kind calls points one-line tolerated
for command in $commands; do
    clean
    fault= preload=
    lost=
    run $command > good.out 2> err && [ -z "$lost" ] || { echo "FAIL: $command: $lost $(tail -1 err)"; exit 1; }
    rm -rf good good.logs; cp -r made good
    [ ! -e logs/f ] || cp -r logs/f good.logs
    clean
    fault=count preload=$faults
    rm -f count
    run $command > /dev/null 2>&1
    [ -s count ] || { echo "FAIL: $command: nothing was counted"; exit 1; }
    for kind in $kinds; do
        calls=$(awk -v kind=$kind '$1 == kind { print $2 }' count)
        [ "${calls:-0}" -gt 0 ] || continue
        step=1
        [ "$points" = 0 ] || step=$(((calls + points - 1) / points))
        lines=0 fine=0 here=0
        for ((n = 1 + RANDOM % step; n <= calls; n += step)); do
            clean
            fault=$kind:$n
            run $command > out 2> err
            code=$?
            here=$((here + 1))
            case $code in
            0)
                fine=$((fine + 1))
                [ -z "$lost" ] || fail "$command, $kind $n of $calls: $lost"
                why=$(same) || fail "$command, $kind $n of $calls: $(tail -1 <<< "$why")"
                ;;
            1 | 2)
                lines=$((lines + 1))
                [ "$(grep -vc '^warning:' err)" = 1 ] || fail "$command, $kind $n: $(grep -vc '^warning:' err) lines: $(tail -3 err | tr '\n' '|')"
                ;;
            *) fail "$command, $kind $n of $calls: exit code $code: $(tail -1 err)" ;;
            esac
            why=$(whole) || fail "$command, $kind $n of $calls: $why"
        done
        printf '%-9s %-7s %6d %7d %8d %8d\n' $command $kind "$calls" $here $lines $fine
        total=$((total + here)) refused=$((refused + lines)) passed=$((passed + fine))
    done
done
[ $total -gt 0 ] || fail "no call was counted"
echo "$total points: $refused ended with one line, $passed did not need the call; $([ $bad = 0 ] && echo 0 failures || echo FAILURES)"
exit $bad
