# make install: the program, both libraries, headers, a pkg-config file, man pages.
include(GNUInstallDirs)

# pkg-config names for what the static library needs besides itself: full paths become -l where they can.
set(private_libs "")
foreach(lib IN LISTS CLOOB_LIBRARIES)
    if(TARGET ${lib})
        if(lib STREQUAL "OpenMP::OpenMP_C")
            string(APPEND private_libs " -fopenmp")
        elseif(lib STREQUAL "MPI::MPI_C")
            foreach(file IN LISTS MPI_C_LIBRARIES)
                string(APPEND private_libs " ${file}")
            endforeach()
        else()
            get_target_property(file ${lib} IMPORTED_LOCATION)
            if(NOT file)
                get_target_property(file ${lib} IMPORTED_LOCATION_RELEASE)
            endif()
            if(NOT file)
                get_target_property(file ${lib} IMPORTED_LOCATION_NOCONFIG)
            endif()
            if(NOT file)
                get_target_property(file ${lib} INTERFACE_LINK_LIBRARIES)
                string(REPLACE ";" " " file "${file}")
            endif()
            if(file AND NOT file MATCHES "\\$<")
                string(APPEND private_libs " ${file}")
            endif()
        endif()
    elseif(lib MATCHES "^[-/]")
        string(APPEND private_libs " ${lib}")
    else()
        string(APPEND private_libs " -l${lib}")
    endif()
endforeach()
if(CLOOB_HAVE_CUDA)
    string(APPEND private_libs " -lstdc++ -lrt") # the host side of kernels
endif()
file(RELATIVE_PATH CLOOB_UP_TO_PREFIX "/x/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/x")
set(CLOOB_PRIVATE_LIBS "${private_libs}")
configure_file(${CMAKE_SOURCE_DIR}/cmake/cloob.pc.in ${CMAKE_BINARY_DIR}/cloob.pc @ONLY)

# Targets that are installed would get a build RPATH that ends in ":" (room for CMake's editor), and the loader reads an empty
# element as the current folder. So they are linked with their final RPATH, and the installed copies lose it: they ask the
# system's loader configuration.
set_target_properties(cloob cloob_shared PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${CMAKE_BUILD_RPATH}"
    INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS cloob cloob_static cloob_shared)
if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    foreach(file ${CMAKE_INSTALL_BINDIR}/cloob ${CMAKE_INSTALL_LIBDIR}/libcloob.so.${PROJECT_VERSION})
        install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\")")
    endforeach()
endif()
install(DIRECTORY include/cloob DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(FILES ${CMAKE_BINARY_DIR}/cloob.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# One man page per command, out of the tables that make the help.
install(CODE "execute_process(COMMAND ${CMAKE_BINARY_DIR}/cloob help --man-all \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\"
    COMMAND_ERROR_IS_FATAL ANY)")

# Shell completion out of the same tables, where the shells look for it.
function(cloob_install_completion shell folder file)
    install(CODE "file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${folder}\")
        execute_process(COMMAND ${CMAKE_BINARY_DIR}/cloob help --completion ${shell} COMMAND_ERROR_IS_FATAL ANY
            OUTPUT_FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${folder}/${file}\")")
endfunction()
cloob_install_completion(bash bash-completion/completions cloob)
cloob_install_completion(zsh zsh/site-functions _cloob)
cloob_install_completion(fish fish/vendor_completions.d cloob.fish)
