# Writes OUT, a header with the commit of the sources in SOURCE: asked of git at every build, or put by git archive into
# source_commit.txt. Run as cmake -DSOURCE=... -DOUT=... -P; the header is written only when it changes.
execute_process(COMMAND git -C ${SOURCE} describe --always --exclude=* --abbrev=40 --dirty=-modified
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT EXISTS ${SOURCE}/.git)
    file(STRINGS ${SOURCE}/cmake/source_commit.txt commit LIMIT_COUNT 1)
endif()
if(NOT commit MATCHES "^[0-9a-f]+(-modified)?$")
    set(commit unknown)
endif()
set(text "#define CLOOB_SOURCE_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
    file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
    file(WRITE ${OUT} "${text}")
endif()
