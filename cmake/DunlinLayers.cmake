# The order of the layers as a build step: target `layers`, run again only when a source file changed.
include_guard(GLOBAL)

find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
    message(STATUS "dunlin: no python3, so the build does not check the order of the layers (tools/layers)")
    add_custom_target(layers)
    return()
endif()

file(GLOB_RECURSE layered CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*" "${PROJECT_SOURCE_DIR}/include/*")
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/layers.stamp"
    COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tools/layers" "${PROJECT_SOURCE_DIR}"
    COMMAND ${CMAKE_COMMAND} -E touch "${PROJECT_BINARY_DIR}/layers.stamp"
    DEPENDS ${layered} "${PROJECT_SOURCE_DIR}/tools/layers" "${PROJECT_SOURCE_DIR}/tools/layers.txt"
    COMMENT "Checking the order of the layers"
    VERBATIM)
add_custom_target(layers DEPENDS "${PROJECT_BINARY_DIR}/layers.stamp")
