# Warnings, sanitizers and include paths that every target of ours shares.
set(CLOOB_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes
    -Wno-format-truncation) # texts for people may be cut
if(CLOOB_WERROR)
    list(APPEND CLOOB_WARNINGS -Werror)
endif()

function(cloob_target target)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fopenmp-simd>) # simd loops, with or without OpenMP's threads
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${CLOOB_WARNINGS}>)
    if(CLOOB_SANITIZE)
        target_compile_options(${target} PRIVATE
            $<$<COMPILE_LANGUAGE:C>:-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer>)
        target_link_options(${target} PRIVATE -fsanitize=address,undefined)
    endif()
    if(CLOOB_COVERAGE) # lightly optimised, so that lines and branches are those of the source
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:--coverage -O1 -g -fprofile-update=prefer-atomic -Wno-maybe-uninitialized>)
        target_link_options(${target} PRIVATE --coverage)
    endif()
    if(CLOOB_FUZZ)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
    endif()
endfunction()
