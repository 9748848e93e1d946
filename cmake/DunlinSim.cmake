# The cases of the simulation build: one program, and a test for each of its files (tests/sim/<protocol>_cases.cpp).
include_guard(GLOBAL)

file(GLOB case_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/sim/*_cases.cpp")
dunlin_program(sim_cases "${PROJECT_SOURCE_DIR}/tests/sim/cases.cpp;${PROJECT_SOURCE_DIR}/tests/sim/whole.cpp;${PROJECT_SOURCE_DIR}/tests/sim/heap.cpp;${case_files}" "${CMAKE_CURRENT_BINARY_DIR}/sim")
target_include_directories(sim_cases PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
foreach(file IN LISTS case_files)
    cmake_path(GET file STEM name)
    string(REGEX REPLACE "_cases$" "" name "${name}")
    add_test(NAME sim/${name}_cases COMMAND sim_cases "${name}/")
    set_tests_properties(sim/${name}_cases PROPERTIES TIMEOUT 300 LABELS sim)
endforeach()

# A few mutations of the real files; ./dev mutate tries them all.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
    add_test(NAME sim/mutations COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/mutation/mutate.py"
        "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" --sample 6)
    set_tests_properties(sim/mutations PROPERTIES TIMEOUT 300 LABELS sim RUN_SERIAL ON)
endif()

# The runtime on many virtual CPUs (./dev scale, docs/scale.md).
dunlin_program(scale_simulated
    "${PROJECT_SOURCE_DIR}/tests/scale/simulated.cpp;${PROJECT_SOURCE_DIR}/tests/scale/workloads.cpp" "${CMAKE_CURRENT_BINARY_DIR}/scale")
target_include_directories(scale_simulated PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
if(Python3_Interpreter_FOUND)
    add_test(NAME sim/scale COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/tests/tools/scale_test.py" $<TARGET_FILE:scale_simulated>)
    set_tests_properties(sim/scale PROPERTIES TIMEOUT 120 LABELS sim)
endif()
