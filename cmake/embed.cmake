# cloob_embed(NAME FILE): the file's bytes in the library, as asset_NAME and asset_NAME_bytes (src/report/assets.h).
# Done when configuring, again when the file changes; a source that comes out the same is left alone.
function(cloob_embed name file)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/asset_${name}.c)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    file(WRITE ${source}.new "#include \"report/assets.h\"\nconst unsigned char asset_${name}[] = { ${bytes} };\n"
        "const size_t asset_${name}_bytes = sizeof asset_${name};\n")
    configure_file(${source}.new ${source} COPYONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    target_sources(cloob_objects PRIVATE ${source})
endfunction()
