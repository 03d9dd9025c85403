# cloob_embed(NAME FILE TARGET): the file's bytes in the target, as asset_NAME and
# asset_NAME_bytes (tools/lab/report/page.h). Done when configuring, again when the file changes; a source that comes out the
# same is left alone.
function(cloob_embed name file target)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/asset_${name}.c)
    get_filename_component(file ${file} ABSOLUTE)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    file(WRITE ${source}.new "#include <stddef.h>\nextern const unsigned char asset_${name}[];\nextern const size_t asset_${name}_bytes;\n"
        "const unsigned char asset_${name}[] = { ${bytes} };\nconst size_t asset_${name}_bytes = sizeof asset_${name};\n")
    configure_file(${source}.new ${source} COPYONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    target_sources(${target} PRIVATE ${source})
endfunction()
