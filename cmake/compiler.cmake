# Warnings, sanitizers and include paths that all targets share.
set(CLOOB_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes
    -Wno-format-truncation) # texts for people may be cut
if(CLOOB_WERROR)
    list(APPEND CLOOB_WARNINGS -Werror)
endif()

# Hardening, on by default: a bug that is left in a parser becomes an abort, not a way in. Checked by tests/cli/hardened.sh.
# Sanitizers and coverage have checks and optimisation levels of their own.
include(CheckCCompilerFlag)
check_c_compiler_flag(-fcf-protection=full CLOOB_HAS_CET)
check_c_compiler_flag(-fstack-clash-protection CLOOB_HAS_STACK_CLASH)
set(CLOOB_HARDENING -fstack-protector-strong)
if(CLOOB_HAS_CET AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND CLOOB_HARDENING -fcf-protection=full)
endif()
if(CLOOB_HAS_STACK_CLASH)
    list(APPEND CLOOB_HARDENING -fstack-clash-protection)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL Debug AND NOT CLOOB_SANITIZE AND NOT CLOOB_COVERAGE) # it needs optimisation
    list(APPEND CLOOB_HARDENING -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()

# Sanitizers (make debug, make tsan, make integer). Threads: OpenMP's own waiting is invisible to the sanitizer, so that build
# uses plain threads (-DCLOOB_WITH_OPENMP=OFF). Integers: also conversions that lose digits or the sign without a cast; unsigned
# arithmetic that wraps is defined, and hashes need it. clang's check of pointers also refuses an offset of zero to NULL, as scratch of no
# bytes has it; gcc's, which is part of make debug, does not.
if(CLOOB_SANITIZE STREQUAL "thread")
    set(CLOOB_SANITIZERS -fsanitize=thread)
elseif(CLOOB_SANITIZE STREQUAL "integer")
    set(CLOOB_SANITIZERS -fsanitize=undefined,float-cast-overflow,implicit-conversion -fno-sanitize=pointer-overflow -fno-sanitize-recover=all)
elseif(CLOOB_SANITIZE)
    set(CLOOB_SANITIZERS -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow)
endif()

# GCC 12 for AArch64 ends with an internal error where it vectorises a reduction by fmax. Programs and tests have no loop that must be
# fast; the one file of the library with such a loop is named in src/tensor/CMakeLists.txt.
set(CLOOB_PROGRAM_FLAGS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
    set(CLOOB_PROGRAM_FLAGS -fno-tree-loop-vectorize)
endif()

function(cloob_target target)
    get_target_property(kind ${target} TYPE)
    if(kind STREQUAL EXECUTABLE)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C>:${CLOOB_PROGRAM_FLAGS}>")
    endif()
    if(CLOOB_HARDEN)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C>:${CLOOB_HARDENING}>")
        target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now,-z,noexecstack)
        if(kind STREQUAL EXECUTABLE) # libraries are position-independent as they are
            target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C>:-fPIE>")
            target_link_options(${target} PRIVATE -pie)
        endif()
    endif()
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tools ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fopenmp-simd>) # simd loops, with or without OpenMP's threads
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${CLOOB_WARNINGS}>)
    if(CLOOB_SANITIZE)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C>:${CLOOB_SANITIZERS};-fno-omit-frame-pointer>")
        target_link_options(${target} PRIVATE ${CLOOB_SANITIZERS})
    endif()
    if(CLOOB_COVERAGE) # lightly optimised, so that lines and branches are those of the source
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:--coverage -O1 -g -fprofile-update=prefer-atomic -Wno-maybe-uninitialized>)
        target_link_options(${target} PRIVATE --coverage)
    endif()
    if(CLOOB_FUZZ)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
    endif()
endfunction()
