#!/bin/bash
# Tries what dist/ has in fresh Debian roots: test-deb.sh [DIST] [WORK]. The Debian packages are installed, used, upgraded and
# removed; the tarball and the wheel run in roots without any of cloob's libraries, where they download a model from a hub on loopback; the
# container files' own lines run in another root. Needs root, debootstrap, curl, openssl and python3. Nothing is downloaded but Debian's packages, from DEBIAN_MIRROR, or debootstrap's default.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-dist}" && pwd)
work=${2:-$(mktemp -d)}
mirror=${DEBIAN_MIRROR:-}
root=$work/deb
server=
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    for r in "$work"/*/proc; do ! mountpoint -q "$r" || umount "$r"; done
}
trap end EXIT
step() { echo "== $*"; }
fail() { echo "FAIL: $*"; exit 1; }
enter() { exec chroot ${user:+--userspec="$user"} "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
inside() { (enter "$@"); }
apt_install() { # names, and patterns of files inside
    inside sh -c "apt-get install -y -qq --no-install-recommends $*" >"$work/apt.log" 2>&1 || { tail "$work/apt.log"; fail "apt-get install $*"; }
}
new_root() { # NAME: the bare root under another name, which becomes the one that `inside` runs in
    root=$work/$1
    rm -rf --one-file-system "$root"
    cp -a "$work/base" "$root"
    mount -t proc proc "$root/proc"
}
answers() { # PORT LOG KEY PROGRAM ARG...: starts a server, asks it for the embedding of a text and ends it
    local port=$1 log=$2 key=$3 n
    shift 3
    enter "$@" >"$log" 2>&1 &
    server=$!
    n=$(curl -sS --retry 100 --retry-delay 1 --retry-connrefused --max-time 120 ${key:+-H "Authorization: Bearer $key"} \
        "http://127.0.0.1:$port/v1/embeddings" -d '{"input": ["a red ball"]}' 2>>"$log" |
        python3 -c 'import json, sys; print(len(json.load(sys.stdin)["data"][0]["embedding"]))' 2>>"$log") || { tail -5 "$log"; fail "$1: no answer"; }
    kill "$server"
    wait "$server" || true
    server=
    echo "  /v1/embeddings answers $n numbers"
}

downloads() { # FOLDER PROGRAM [readme]: pulls a model by https and embeds with it; FOLDER has the authorities, as the root has none; then runs readme.sh
    local url name=hf:laion/CLIP-ViT-B-32-laion2B-s34B-b79K # the model of README's first commands, here a tiny one
    mkdir -p "$work/hub" && cp "$work/model.safetensors" "$work/hub/model.safetensors"
    [ -s "$work/hub.pem" ] || PYTHONPATH=$here/../tests/hub python3 -c 'import hub_server, sys; hub_server.make_certificate(sys.argv[1])' "$work/hub.pem"
    coproc HUB { exec python3 "$here/../tests/hub/hub_server.py" "${name#hf:}" "$work/hub" "$work/hub.pem"; }
    server=$HUB_PID
    read -r url <&"${HUB[0]}"
    ! inside env HF_ENDPOINT="$url" "$2" pull $name 2>"$work/pull.log" || fail "a certificate that nobody signed was accepted"
    sed 's/^/  /' "$work/pull.log"
    sed '/PRIVATE/,$d' "$work/hub.pem" >>"$root$1/ca-certificates.crt"
    inside env HF_ENDPOINT="$url" "$2" pull $name >/dev/null || fail "pull"
    inside sh -c "cd /root && echo 'a red ball' >texts && $2 embed --checkpoint $name --texts texts --out rows.npy --quiet" >/dev/null
    echo "  pulled by https and used: $(stat -c %s "$root/root/rows.npy") bytes of rows"
    [ $# = 2 ] || inside sh -c "cd /root && PATH=$(dirname "$2"):\$PATH HF_ENDPOINT=$url sh -eu readme.sh" || fail "README's first commands"
    kill "$server" && wait "$server" 2>/dev/null || true
    server=
}

step "a fresh root"
mkdir -p "$work"
[ -d "$work/base" ] || debootstrap --variant=minbase bookworm "$work/base" ${mirror:+"$mirror"} >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
printf '#!/bin/sh\nexit 101\n' >"$work/base/usr/sbin/policy-rc.d" && chmod +x "$work/base/usr/sbin/policy-rc.d" # no services in here
echo force-unsafe-io >"$work/base/etc/dpkg/dpkg.cfg.d/fast"
new_root deb
mkdir "$root/deb" && cp "$dist"/*.deb "$root/deb/"

step "install cloob alone, without what it recommends"
inside apt-get update -qq
apt_install '/deb/cloob_*.deb'
inside cloob --version
inside id -u cloob >/dev/null
message=$(inside cloob synth --out /w --count 1 --size 64 2>&1 >/dev/null | tail -1) || true
case $message in *"install libcairo2"*) echo "  $message" ;; *) fail "cloob synth: $message" ;; esac
doctor=$(inside cloob doctor)
sed -n '/^libraries loaded/,/^$/p' <<<"$doctor"
grep -q ' no   install libmicrohttpd12' <<<"$doctor" || fail "cloob doctor does not say what the server needs"

step "install all"
apt_install '/deb/*.deb' libcairo2 fonts-dejavu-core libheif1 libtiff6 libcurl4 libmicrohttpd12 \
    gcc libc6-dev pkg-config systemd
doctor=$(inside cloob doctor)
sed -n '/^libraries loaded/,$p' <<<"$doctor"
! grep ' no   install ' <<<"$doctor" || fail "a library of the packages is missing"

step "use: data, training, classification, search, the server"
inside sh -c 'cd /root && cloob synth --out world --count 64 --size 64 --seed 1 --quiet &&
    cloob train --train-data world/train.tsv --model tiny --batch-size 16 --max-steps 4 --warmup 1 --name a --quiet >/dev/null &&
    cp logs/a/checkpoints/*latest* model.safetensors && image=$(find world/images -name "*.jpg" | head -1) &&
    cloob classify --checkpoint model.safetensors --labels red,blue "$image" --quiet | head -2 &&
    cloob search index world/images --checkpoint model.safetensors --quiet && cloob search query "a red ball" --index world/images --quiet | head -3'
cp "$root/root/model.safetensors" "$work/model.safetensors"
answers 18431 "$work/serve.log" "" cloob serve --checkpoint /root/model.safetensors --index /root/world/images --port 18431
inside python3 -c 'import cloob; print("python:", cloob.__version__, cloob.load("/root/model.safetensors").encode_text(["a red ball"]).shape)'
inside sh -c 'cd /root && mpirun --allow-run-as-root --oversubscribe -np 2 cloob train --train-data world/train.tsv --model tiny \
    --batch-size 8 --max-steps 2 --warmup 1 --name ranks --quiet >/dev/null && echo "mpirun: two ranks"'
cp "$here/../examples/classify.c" "$root/root/"
inside sh -c 'cd /root && gcc classify.c $(pkg-config --cflags --libs cloob) -o classify && echo "libcloob-dev: examples/classify.c" &&
    ./classify model.safetensors "$(find world/images -name "*.jpg" | head -1)" red blue'
for f in /usr/share/man/man1/cloob-train.1.gz /usr/share/bash-completion/completions/cloob /usr/share/doc/cloob/cloob.spdx.json*; do
    inside sh -c "test -s $f" || fail "$f is missing"
done
inside systemd-analyze --man=no verify cloob.service
inside systemd-analyze security --offline=true cloob.service 2>/dev/null | tail -1

step "upgrade"
for deb in "$root"/deb/*.deb; do
    dpkg-deb -R "$deb" "$work/new" && sed -i -e 's/^Version: .*/&+1/' -e 's/(= \([0-9.]*\))/(= \1+1)/g' "$work/new/DEBIAN/control" &&
        dpkg-deb --root-owner-group -b "$work/new" "${deb%.deb}+1.deb" >/dev/null && rm -rf "$work/new" "$deb"
done
apt_install '/deb/*.deb'
inside dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' cloob cloob-mpi libcloob0 libcloob-dev python3-cloob
inside cloob --version

step "remove"
inside apt-get purge -y -qq cloob cloob-mpi libcloob0 libcloob-dev python3-cloob >/dev/null 2>&1
left=$(inside sh -c 'find /usr /etc /lib /var/cache -path "*cloob*" -not -path "/var/cache/apt/*" | head')
[ -z "$left" ] || fail "left behind: $left"
echo "packages install, work, upgrade and leave nothing"

step "the lines of cpu.dockerfile, compose.yml and compose-immich.yml"
new_root container
mkdir "$root/deb" "$root/models" && cp "$dist"/*.deb "$root/deb/"
cp "$work/model.safetensors" "$root/models/"
inside sh -euc "$(sed -n '/^RUN /,/[^\\]$/{ s/^RUN //; p }' "$here/containers/cpu.dockerfile")" >"$work/container.log" 2>&1 || { tail "$work/container.log"; exit 1; }
user=$(sed -n 's/^USER //p' "$here/containers/cpu.dockerfile")
environment=$(sed -n 's/^ENV //p' "$here/containers/cpu.dockerfile")
mkdir -p "$root/run/secrets" && echo a-key-for-this-test-alone-0123456789 >"$root/run/secrets/key" && chmod 644 "$root/run/secrets/key"
for file in compose compose-immich; do
    key=a-key-for-this-test-alone-0123456789
    [ $file = compose ] || key=
    mapfile -t command < <(python3 - "$here/containers/$file.yml" <<'PYTHON'
import json, re, sys
for a in json.loads(re.search(r"command: (\[.*\])", open(sys.argv[1]).read()).group(1)):
    print(re.sub(r"\$\{[^}]*\}", "/models/model.safetensors", a))
PYTHON
    )
    echo "  cloob ${command[*]}"
    answers 8000 "$work/$file.log" "$key" $environment cloob "${command[@]}"
done
user=

tarball=$(ls "$dist"/cloob-*-linux-*.tar.xz 2>/dev/null | tail -1) || true
if [ -n "$tarball" ]; then
    step "the tarball in a root with nothing installed"
    new_root tarball
    tar -xf "$tarball" -C "$root/opt"
    cp "$work/model.safetensors" "$root/opt/"
    program=/opt/$(basename "$tarball" .tar.xz)/bin/cloob
    inside "$program" --version
    inside "$program" doctor | sed -n '/^libraries loaded/,$p'
    answers 18432 "$work/tarball.log" "" "$program" serve --checkpoint /opt/model.safetensors --port 18432
    downloads "$(inside sh -c 'dirname /opt/*/lib*/libcurl-gnutls.so.4 /opt/*/lib/*/libcurl-gnutls.so.4 2>/dev/null' | grep cloob- | tail -1)" "$program"
    rm -rf "$root/opt/$(basename "$tarball" .tar.xz)"
fi

wheel=$(ls "$dist"/cloob-*.whl 2>/dev/null | tail -1) || true
if [ -n "$wheel" ]; then
    step "the wheel in a root with Python and NumPy alone"
    new_root wheel
    inside apt-get update -qq
    apt_install python3-venv python3-numpy
    cp "$wheel" "$work/model.safetensors" "$root/root/"
    inside sh -c 'cd /root && python3 -m venv --system-site-packages venv && venv/bin/pip install -q --no-index --no-deps cloob-*.whl && venv/bin/cloob --version &&
        venv/bin/python -c "import cloob; print(\"python:\", cloob.__version__, cloob.load(\"model.safetensors\").encode_text([\"a red ball\"]).shape)"'
    sed -n '/^```sh$/,/^```$/{ /^```/d; p }; /^## Install/q' "$here/../README.md" >"$root/root/readme.sh"
    cp -r "$work/deb/root/world/images" "$root/root/photos" && rm -f "$root/root/photos"/.cloob-index*
    rm -r "$root/etc/ssl/certs" # python3-venv brings ca-certificates, which cloob prefers to the wheel's
    downloads "$(inside sh -c 'echo /root/venv/lib/python3*/site-packages/cloob/libs')" /root/venv/bin/cloob readme
    [ -s "$root/root/sheet.html" ] || fail "README's first commands wrote no sheet.html"
    inside sh -c 'cd /root && venv/bin/pip uninstall -q -y cloob && ! ls venv/lib/python3*/site-packages | grep cloob' || fail "pip uninstall left files"
fi
echo "all packages of $(basename "$dist") work"
