# make install: the program, both libraries, headers, files for pkg-config and find_package, man pages, completion.
include(GNUInstallDirs)
set(dollar "$")

# pkg-config names for what the static library needs besides itself: full paths become -l where they can.
set(private_libs "")
foreach(lib IN LISTS CLOOB_LIBRARIES)
    if(TARGET ${lib})
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
    elseif(lib MATCHES "^[-/]")
        string(APPEND private_libs " ${lib}")
    else()
        string(APPEND private_libs " -l${lib}")
    endif()
endforeach()
string(REGEX REPLACE " (/usr)?/lib(/[^/ ]+-linux-gnu[^/ ]*)?/lib([^/ ]+)\\.so" " -l\\3" private_libs "${private_libs}") # the linker's own folders
if(CLOOB_HAVE_CUDA)
    string(APPEND private_libs " -lstdc++ -lrt") # the host side of kernels
endif()
file(RELATIVE_PATH CLOOB_UP_TO_PREFIX "/x/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/x")
file(RELATIVE_PATH CLOOB_CONFIG_TO_PREFIX "/x/${CMAKE_INSTALL_LIBDIR}/cmake/cloob" "/x")
file(RELATIVE_PATH CLOOB_BIN_TO_LIB "/x/${CMAKE_INSTALL_BINDIR}" "/x/${CMAKE_INSTALL_LIBDIR}")
set(CLOOB_PRIVATE_LIBS "${private_libs}")
string(STRIP "${private_libs} -lm -lpthread" CLOOB_PRIVATE_LIBS_LIST)
string(REGEX REPLACE " +" ";" CLOOB_PRIVATE_LIBS_LIST "${CLOOB_PRIVATE_LIBS_LIST}")
# A program linked against a prefix of its own finds libcloob.so there without LD_LIBRARY_PATH.
set(CLOOB_PC_RPATH "")
if(CLOOB_INSTALL_RPATH)
    set(CLOOB_PC_RPATH " -Wl,-rpath,${dollar}{libdir}")
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/cloob.pc.in ${CMAKE_BINARY_DIR}/cloob.pc @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/cmake/cloob-config.cmake.in ${CMAKE_BINARY_DIR}/cloob-config.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cloob-config-version.cmake COMPATIBILITY SameMinorVersion)

# Targets that are installed would get a build RPATH that ends in ":" (padding for CMake's editor), and the loader reads an
# empty element as the current folder. So they are linked with their final RPATH: this build folder and the places of CUDA's
# libraries, of which the installed copies keep the way from the program to the library folder alone.
set_target_properties(cloob cloob_shared PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
set(old_bin "${dollar}ORIGIN:${dollar}ORIGIN/${CLOOB_BIN_TO_LIB}")
set(old_lib "${dollar}ORIGIN")
set(places ${CMAKE_BUILD_RPATH})
list(REMOVE_ITEM places "${dollar}ORIGIN")
foreach(place IN LISTS places)
    string(APPEND old_bin ":${place}")
    string(APPEND old_lib ":${place}")
endforeach()
set_target_properties(cloob PROPERTIES INSTALL_RPATH "${old_bin}")
set_target_properties(cloob_shared PROPERTIES INSTALL_RPATH "${old_lib}")
install(TARGETS cloob RUNTIME COMPONENT program)
install(TARGETS cloob_shared LIBRARY COMPONENT library NAMELINK_COMPONENT development)
if(TARGET cloob_mpi)
    set_target_properties(cloob_mpi PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
    if(NOT CLOOB_MPI_DIR)
        set(CLOOB_MPI_DIR ${CMAKE_INSTALL_LIBDIR})
    endif()
    install(TARGETS cloob_mpi LIBRARY DESTINATION ${CLOOB_MPI_DIR} COMPONENT mpi)
endif()
function(cloob_set_runpath file new component)
    set(path "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}")
    if(CLOOB_INSTALL_RPATH)
        string(REPLACE "${dollar}" "\\${dollar}" new "${new}")
        install(CODE "file(RPATH_SET FILE \"${path}\" NEW_RPATH \"${new}\")" COMPONENT ${component})
    else()
        install(CODE "file(RPATH_REMOVE FILE \"${path}\")" COMPONENT ${component})
    endif()
endfunction()
if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    cloob_set_runpath(${CMAKE_INSTALL_BINDIR}/cloob "${dollar}ORIGIN/${CLOOB_BIN_TO_LIB}" program)
    cloob_set_runpath(${CMAKE_INSTALL_LIBDIR}/libcloob.so.${PROJECT_VERSION} "${dollar}ORIGIN" library)
endif()

# The static library that is installed: one object whose only global symbols are those of cmake/symbols.txt. Tests and the
# program link cloob_static, which shows the inside.
if(CMAKE_OBJCOPY AND NOT APPLE AND NOT CLOOB_SANITIZE)
    set(archive ${CMAKE_BINARY_DIR}/public/libcloob.a)
    add_custom_command(OUTPUT ${archive} VERBATIM
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/public
        COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/public/cloob.o --whole-archive $<TARGET_FILE:cloob_static>
        COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${CMAKE_SOURCE_DIR}/cmake/symbols.txt ${CMAKE_BINARY_DIR}/public/cloob.o
        COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
        COMMAND ${CMAKE_AR} Dcrs ${archive} ${CMAKE_BINARY_DIR}/public/cloob.o
        DEPENDS cloob_static ${CMAKE_SOURCE_DIR}/cmake/symbols.txt)
    add_custom_target(cloob_public_archive ALL DEPENDS ${archive})
    install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
else()
    install(TARGETS cloob_static ARCHIVE COMPONENT development)
endif()
install(DIRECTORY include/cloob DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def")
install(FILES ${CMAKE_BINARY_DIR}/cloob.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/cloob-config.cmake ${CMAKE_BINARY_DIR}/cloob-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cloob COMPONENT development)

# One man page per command, out of the tables that make the help.
install(CODE "execute_process(COMMAND ${CMAKE_BINARY_DIR}/cloob help --man-all \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\"
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)

# Shell completion out of the same tables, where the shells look for it.
function(cloob_install_completion shell folder file)
    install(CODE "file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${folder}\")
        execute_process(COMMAND ${CMAKE_BINARY_DIR}/cloob help --completion ${shell} COMMAND_ERROR_IS_FATAL ANY
            OUTPUT_FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${folder}/${file}\")" COMPONENT program)
endfunction()
cloob_install_completion(bash bash-completion/completions cloob)
cloob_install_completion(zsh zsh/site-functions _cloob)
cloob_install_completion(fish fish/vendor_completions.d cloob.fish)

# What is installed, without tests and benchmarks.
add_custom_target(cloob_installed)
add_dependencies(cloob_installed cloob cloob_shared)
foreach(target cloob_public_archive cloob_mpi) # neither is in every build
    if(TARGET ${target})
        add_dependencies(cloob_installed ${target})
    endif()
endforeach()
