# A small front for CMake. `make` builds and installs nothing; `make deps` installs what is missing (Debian packages).
# `make test`, `make demo`, `make debug` and `make wheel` do that set-up by themselves.
BUILD ?= build
CMAKE_FLAGS ?=

.PHONY: all deps test debug demo install wheel format clean

all:
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
	@cmake --build $(BUILD)

deps:
	@scripts/install-deps.sh test

test: deps
	@$(MAKE) --no-print-directory all
	@cd $(BUILD) && ctest --output-on-failure

# Address and undefined-behaviour sanitizers over the same tests.
debug: deps
	@cmake -S . -B $(BUILD)-debug -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCLOOB_SANITIZE=ON -DCLOOB_WITH_CUDA=OFF -DCLOOB_WITH_MPI=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-debug
	@cd $(BUILD)-debug && ctest --output-on-failure

install: all
	@cmake --install $(BUILD)

# The Python package with the library inside: dist/*.whl.
wheel: deps
	@$(MAKE) --no-print-directory all
	@CLOOB_LIBRARY=$(BUILD)/libcloob.so python3 python/builder.py dist

format:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	@rm -rf $(BUILD) $(BUILD)-debug

# Trains and evaluates a small model end to end on the CPU: demo/report.html shows the result. Without a built program it
# builds one for the CPU alone, which takes a minute instead of several.
demo: deps
	@if [ -x $(BUILD)/cloob ]; then CLOOB=$(BUILD)/cloob scripts/demo.sh; else \
	    cmake -S . -B $(BUILD)-demo -G Ninja -DCLOOB_WITH_CUDA=OFF $(CMAKE_FLAGS) && cmake --build $(BUILD)-demo --target cloob && \
	    CLOOB=$(BUILD)-demo/cloob scripts/demo.sh; fi
