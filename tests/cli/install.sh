#!/bin/sh
# Installs into a separate prefix and uses it from outside: a compiler with pkg-config, and CMake's find_package.
# Every header compiles alone as C99 and as C++11; the examples build against both libraries and run without
# LD_LIBRARY_PATH; the static library shows the public functions alone.
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
unset LD_LIBRARY_PATH
flags=$(pkg-config --cflags --libs cloob)
cd "$work"

if command -v nm >/dev/null; then
    others=$(nm -D --defined-only "$PKG_CONFIG_PATH/../libcloob.so" | awk '$2 != "A" && $3 !~ /^cloob_/ { print $3 }')
    [ -z "$others" ] || { echo "libcloob.so shows more than its interface:" $others; exit 1; }
    nm -g --defined-only "$PKG_CONFIG_PATH/../libcloob.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | LC_ALL=C sort >static.symbols
    LC_ALL=C sort "$source/cmake/symbols.txt" | diff - static.symbols || { echo "libcloob.a: global symbols differ from cmake/symbols.txt"; exit 1; }
fi

if command -v readelf >/dev/null; then # nothing of the build machine's folders, nor the current one
    for file in prefix/bin/cloob "$PKG_CONFIG_PATH/../libcloob.so"; do
        readelf -W -d "$file" | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]$/\2/p' | tr ':' '\n' | while IFS= read -r element; do
            case $element in '$ORIGIN'*) ;; *) echo "$file: RUNPATH has $element"; exit 1 ;; esac
        done
    done
fi

for header in prefix/include/cloob/*.h; do
    echo "#include <cloob/$(basename "$header")>" >one.c
    cc -std=c99 -Wall -Wextra -Werror -pedantic-errors -fsyntax-only $(pkg-config --cflags cloob) one.c
    command -v c++ >/dev/null && c++ -std=c++11 -Wall -Wextra -Werror -pedantic-errors -fsyntax-only $(pkg-config --cflags cloob) -x c++ one.c
done
echo '#include <cloob/cloob.hpp>' >one.cpp
! command -v c++ >/dev/null || c++ -std=c++11 -Wall -Wextra -Werror -pedantic-errors -fsyntax-only $(pkg-config --cflags cloob) one.cpp
echo "headers compile as C99 and C++11"

for example in classify search train theory; do
    cc -std=c17 -O1 -Wall -Werror "$source/examples/$example.c" $flags -lm -o "$example"
done
cc -std=c17 -O1 "$source/examples/train.c" $(pkg-config --cflags cloob) "$PKG_CONFIG_PATH/../libcloob.a" \
    $(pkg-config --static --libs-only-l --libs-only-other cloob | sed 's/-lcloob//') -lstdc++ -o train_static
! command -v c++ >/dev/null || c++ -std=c++11 -O1 -Wall -Wextra -Werror "$source/examples/photos.cpp" $flags -o photos
echo "examples build against the shared and the static library"

mkdir cmake
cat >cmake/CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(cloob 0.3 REQUIRED)
add_executable(train_cmake $source/examples/train.c)
target_link_libraries(train_cmake PRIVATE cloob::cloob)
add_executable(train_cmake_static $source/examples/train.c)
target_link_libraries(train_cmake_static PRIVATE cloob::static stdc++)
EOF
cmake -S cmake -B cmake/build -DCMAKE_PREFIX_PATH="$work/prefix" >cmake.log && cmake --build cmake/build >>cmake.log || { cat cmake.log; exit 1; }
./cmake/build/train_cmake cmake.safetensors 1 >/dev/null
./cmake/build/train_cmake_static cmake.safetensors 1 >/dev/null
echo "find_package(cloob) builds both"

./train colours.safetensors 3
./prefix/bin/cloob synth --out world --count 4 --size 64 --seed 1 --quiet >/dev/null || mkdir -p world/images
image=$(find world/images -name '*.jpg' | head -n 1)
if [ -n "$image" ]; then
    ./classify colours.safetensors "$image" red green blue
    ./search colours.safetensors world/images "a red square"
    [ ! -x photos ] || ./photos colours.safetensors world/images "a red square" red green
    [ ! -x photos ] || ! ./photos nothing.safetensors world/images x red green 2>photos.err || exit 1
    [ ! -x photos ] || grep -q nothing.safetensors photos.err
fi
test -s prefix/share/man/man1/cloob-train.1
test -s prefix/share/man/man1/cloob.1
for file in bash-completion/completions/cloob zsh/site-functions/_cloob fish/vendor_completions.d/cloob.fish; do test -s "prefix/share/$file"; done
echo "installed tree works"
