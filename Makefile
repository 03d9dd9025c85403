# Short commands for CMake. `make` builds and installs nothing; `make deps` installs missing Debian packages. Targets that
# need more than a compiler (`make test`, `make quick`, `make lint`, `make coverage`, `make demo`, `make debug`, `make wheel`) run it first.
BUILD ?= build
CMAKE_FLAGS ?=
AARCH64_TESTS ?= core|file|json|option|gemm|gemm_packed|linalg|vmath|attention_head|hopfield|misuse|search|transform|safetensors|tokenizer

.PHONY: all installed deps test quick debug tsan integer lint coverage demo install wheel deb tarball docs screenshots aarch64 format clean

all:
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
	@cmake --build $(BUILD)

# What is installed, without tests and benchmarks.
installed:
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
	@cmake --build $(BUILD) --target cloob_installed

deps:
	@scripts/install-deps.sh test

test: deps
	@$(MAKE) --no-print-directory all
	@cd $(BUILD) && ctest --output-on-failure

# The tests that take under four seconds each: less than two minutes in all.
quick: deps
	@$(MAKE) --no-print-directory all
	@cd $(BUILD) && ctest -L quick --output-on-failure

# Address and undefined-behaviour sanitizers over the same tests.
debug: deps
	@cmake -S . -B $(BUILD)-debug -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCLOOB_SANITIZE=ON -DCLOOB_WITH_CUDA=OFF -DCLOOB_WITH_MPI=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-debug
	@cd $(BUILD)-debug && LSAN_OPTIONS="suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0" ctest --output-on-failure

# Data races: the same tests with plain threads, as the sanitizer does not see what OpenMP waits for.
tsan: deps
	@cmake -S . -B $(BUILD)-tsan -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCLOOB_SANITIZE=thread -DCLOOB_WITH_OPENMP=OFF -DCLOOB_WITH_CUDA=OFF \
	    -DCLOOB_WITH_MPI=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-tsan
	@cd $(BUILD)-tsan && TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp $(TSAN_OPTIONS)" ctest --output-on-failure

# Integers that overflow, lose digits or their sign, and undefined behaviour, by clang.
integer: deps
	@cmake -S . -B $(BUILD)-integer -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCLOOB_SANITIZE=integer -DCLOOB_WERROR=OFF \
	    -DCLOOB_WITH_CUDA=OFF -DCLOOB_WITH_MPI=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-integer
	@cd $(BUILD)-integer && ctest --output-on-failure

# Format, layers, phrases, cppcheck, clang-tidy (scripts/lint.sh); a configured tree is enough, nothing is built.
lint:
	@scripts/install-deps.sh lint
	@cmake -S . -B $(BUILD)-lint -G Ninja -DCLOOB_WITH_CUDA=OFF $(CMAKE_FLAGS) >/dev/null
	@scripts/lint.sh $(BUILD)-lint

# Which lines and branches of src the tests reach: the total, and every file under 70 % (scripts/coverage.py).
coverage:
	@scripts/install-deps.sh test coverage
	@cmake -S . -B $(BUILD)-coverage -G Ninja -DCLOOB_COVERAGE=ON -DCLOOB_WITH_CUDA=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-coverage
	@scripts/coverage.py $(BUILD)-coverage

# Into /usr/local, or make install PREFIX=$HOME/.local.
install: all
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix "$(PREFIX)")

# The Python package with the library, the program and what they need inside: dist/*.whl. Equal sources give equal bytes.
wheel: deps
	@$(MAKE) --no-print-directory installed
	@CLOOB_BUILD=$(BUILD) SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)} python3 python/builder.py dist

# Debian packages of the committed tree: dist/*.deb. packaging/test-deb.sh tries them in a fresh root.
deb:
	@scripts/install-deps.sh package
	@packaging/build-deb.sh dist

# A relocatable tree with its libraries inside: dist/cloob-*.tar.xz.
tarball:
	@scripts/install-deps.sh package
	@$(MAKE) --no-print-directory installed
	@packaging/build-tarball.sh $(BUILD) dist

# The documentation as a site that works without a network: site/index.html. Broken links are errors.
docs:
	@packaging/site.py build-docs/pages
	@[ -x build-docs/venv/bin/mkdocs ] || { python3 -m venv build-docs/venv && build-docs/venv/bin/pip install -q 'mkdocs-material>=9.5,<10'; }
	@NO_MKDOCS_2_WARNING=1 build-docs/venv/bin/mkdocs build -q --strict -f packaging/mkdocs.yml
	@echo "site/index.html: $$(find site -name '*.html' | wc -l) pages, links checked"

# The pictures of the server's page in docs/images, of synthetic images (scripts/screenshots.py); some minutes.
screenshots:
	@scripts/install-deps.sh test page
	@$(MAKE) --no-print-directory all
	@scripts/screenshots.py --cloob $(BUILD)/cloob

# Cross-built for AArch64, the quick tests run by qemu-user.
aarch64:
	@scripts/install-deps.sh aarch64
	@cmake -S . -B $(BUILD)-aarch64 -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCLOOB_WITH_CUDA=OFF -DCLOOB_WITH_MPI=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-aarch64
	@cd $(BUILD)-aarch64 && ctest -L quick --output-on-failure -R '^($(AARCH64_TESTS))$$'

format:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs scripts/wrap_comments.py
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	@rm -rf $(BUILD) $(BUILD)-debug $(BUILD)-tsan $(BUILD)-integer $(BUILD)-lint $(BUILD)-coverage $(BUILD)-demo $(BUILD)-aarch64 build-docs site

# Trains and evaluates a small model end to end on the CPU: demo/report.html shows the result. Without a built program it
# builds one for the CPU alone, which takes a minute instead of several.
demo: deps
	@if [ -x $(BUILD)/cloob ]; then CLOOB=$(BUILD)/cloob scripts/demo.sh; else \
	    cmake -S . -B $(BUILD)-demo -G Ninja -DCLOOB_WITH_CUDA=OFF $(CMAKE_FLAGS) && cmake --build $(BUILD)-demo --target cloob && \
	    CLOOB=$(BUILD)-demo/cloob scripts/demo.sh; fi
