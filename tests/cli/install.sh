#!/bin/sh
# Installs into a prefix of its own and uses it as a stranger would: nothing but pkg-config and a compiler. The header
# compiles as C and as C++, alone and part by part; the three examples build against both libraries and run.
#   usage: install.sh BUILD_DIR SOURCE_DIR
set -eu
build=$1 source=$2
work=$build/install-test
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
command -v pkg-config >/dev/null || { echo "skipped: no pkg-config"; exit 77; }

DESTDIR= cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
export PKG_CONFIG_PATH="$(dirname "$(find "$work/prefix" -name cloob.pc)")"
export LD_LIBRARY_PATH="$PKG_CONFIG_PATH/.."
flags=$(pkg-config --cflags --libs cloob)
cd "$work"

if command -v nm >/dev/null; then
    others=$(nm -D --defined-only "$PKG_CONFIG_PATH/../libcloob.so" | awk '$2 != "A" && $3 !~ /^cloob_/ { print $3 }')
    [ -z "$others" ] || { echo "libcloob.so shows more than its interface:" $others; exit 1; }
fi

if command -v readelf >/dev/null; then # nothing of the build machine's folders, nor the current one
    for file in prefix/bin/cloob "$PKG_CONFIG_PATH/../libcloob.so"; do
        ! readelf -W -d "$file" | grep -E '\((RUNPATH|RPATH)\)' || { echo "$file: has a RUNPATH"; exit 1; }
    done
fi

for header in prefix/include/cloob/*.h; do
    echo "#include <cloob/$(basename "$header")>" >one.c
    cc -std=c17 -Wall -Wextra -Werror -pedantic -fsyntax-only $(pkg-config --cflags cloob) one.c
    command -v c++ >/dev/null && c++ -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags cloob) -x c++ one.c
done
echo "headers compile as C and C++"

for example in classify search train; do
    cc -std=c17 -O1 -Wall "$source/examples/$example.c" $flags -o "$example"
done
cc -std=c17 -O1 "$source/examples/train.c" $(pkg-config --cflags cloob) "$PKG_CONFIG_PATH/../libcloob.a" \
    $(pkg-config --static --libs-only-l --libs-only-other cloob | sed 's/-lcloob//') -lstdc++ -o train_static
echo "examples build against the shared and the static library"

./train colours.safetensors 3
./prefix/bin/cloob synth --out world --count 4 --size 64 --seed 1 --quiet >/dev/null || mkdir -p world/images
image=$(find world/images -name '*.jpg' | head -n 1)
if [ -n "$image" ]; then
    ./classify colours.safetensors "$image" red green blue
    ./search colours.safetensors world/images "a red square"
fi
test -s prefix/share/man/man1/cloob-train.1
test -s prefix/share/man/man1/cloob.1
for file in bash-completion/completions/cloob zsh/site-functions/_cloob fish/vendor_completions.d/cloob.fish; do test -s "prefix/share/$file"; done
echo "installed tree works"
