# Test files that are compiled as one: most of what a test file costs is the headers' templates, which a batch instantiates once.
#
# A batch is a generated source that includes what its files include, and then each file in a namespace of its own; the files' own #includes add nothing
# then (every header has #pragma once). support/batch_main.cpp runs the tests of one file: each file is still an entry of ctest, and a process.
include_guard(GLOBAL)

set(DUNLIN_BATCH_LINES 2500) # a compiler takes about a gigabyte for so many

# Whether a file can be in a batch. Not what means the whole program (functions that replace libc's, assembly, what belongs to a named namespace), nor
# what includes a header under a condition.
function(dunlin_batchable file result)
    file(STRINGS "${file}" whole REGEX
        "^(extern \"C\"|asm|int main|namespace (dunlin|std|testing|support)|(template ?<> ?)?struct (std|dunlin)::|# *(if|ifdef|ifndef|else|elif|endif)|.*operator (new|delete)\\()")
    if(whole)
        set(${result} FALSE PARENT_SCOPE)
    else()
        set(${result} TRUE PARENT_SCOPE)
    endif()
endfunction()

# Writes the source of a batch. It is made anew when one of its files changes, for that may include another header.
function(dunlin_batch_source out files)
    set(includes "")
    set(bodies "")
    foreach(file IN LISTS files)
        file(STRINGS "${file}" lines REGEX "^#include ")
        list(APPEND includes ${lines})
        file(RELATIVE_PATH relative "${CMAKE_CURRENT_SOURCE_DIR}" "${file}")
        string(MAKE_C_IDENTIFIER "${relative}" name)
        string(APPEND bodies "namespace ${name} {\n#include \"${file}\"\n}\n")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    endforeach()
    list(REMOVE_DUPLICATES includes)
    list(JOIN includes "\n" includes)
    file(CONFIGURE OUTPUT "${out}" CONTENT "${includes}\n\n${bodies}" @ONLY)
endfunction()

# Puts the batchable ones of `files` (all of one layer) into batches about as large as each other: sets `batches` to their names, <name>_files to the files
# of each, and `rest` to the others.
function(dunlin_make_batches layer files)
    set(rest "")
    set(batchable_files "")
    set(total 0)
    foreach(file IN LISTS files)
        dunlin_batchable("${file}" batchable)
        if(batchable)
            list(APPEND batchable_files "${file}")
            file(STRINGS "${file}" text)
            list(LENGTH text lines_of_${file})
            math(EXPR total "${total} + ${lines_of_${file}}")
        else()
            list(APPEND rest "${file}")
        endif()
    endforeach()
    list(LENGTH batchable_files count)
    if(count LESS 2)
        set(batches "" PARENT_SCOPE)
        set(rest ${files} PARENT_SCOPE)
        return()
    endif()
    math(EXPR number "(${total} + ${DUNLIN_BATCH_LINES} - 1) / ${DUNLIN_BATCH_LINES}")
    set(batches "")
    set(lines 0) # before this file
    foreach(file IN LISTS batchable_files)
        math(EXPR index "(${lines} * ${number}) / ${total} + 1")
        set(batch ${layer}_batch_${index})
        list(APPEND batches ${batch})
        list(APPEND ${batch}_files "${file}")
        set(${batch}_files ${${batch}_files} PARENT_SCOPE)
        math(EXPR lines "${lines} + ${lines_of_${file}}")
    endforeach()
    list(REMOVE_DUPLICATES batches)
    set(batches ${batches} PARENT_SCOPE)
    set(rest ${rest} PARENT_SCOPE)
endfunction()
