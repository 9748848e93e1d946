# The project's own ways to make a target: what is compiled, with which flags.
include_guard(GLOBAL)

find_package(Threads REQUIRED)

# The folder of assembly that this processor wants: src/**/*_<cpu>.S.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(DUNLIN_CPU x86_64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(DUNLIN_CPU aarch64)
else()
    message(FATAL_ERROR "dunlin: no context switch for '${CMAKE_SYSTEM_PROCESSOR}' (there are x86_64 and aarch64; a new one is src/stack/switch_<cpu>.S)")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
    message(FATAL_ERROR "dunlin: g++ ${CMAKE_CXX_COMPILER_VERSION} is too old, 12 is needed (set CMAKE_CXX_COMPILER)")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    message(FATAL_ERROR "dunlin: clang ${CMAKE_CXX_COMPILER_VERSION} is too old, 16 is needed (set CMAKE_CXX_COMPILER)")
endif()

set(DUNLIN_WARNINGS -Wall -Wextra)
if(DUNLIN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code of the standard library's own headers (std::regex) sets it off: GCC bug 105562.
    list(APPEND DUNLIN_WARNINGS -Wno-maybe-uninitialized)
endif()
if(DUNLIN_WERROR)
    list(APPEND DUNLIN_WARNINGS -Werror)
endif()

set(DUNLIN_SANITIZE_FLAGS "")
if(DUNLIN_SANITIZE)
    if(NOT DUNLIN_SANITIZE MATCHES "^(address|thread|undefined)(,(address|undefined))*$")
        message(FATAL_ERROR "dunlin: DUNLIN_SANITIZE=${DUNLIN_SANITIZE}: expected address, thread, undefined or address,undefined")
    endif()
    set(DUNLIN_SANITIZE_FLAGS -fsanitize=${DUNLIN_SANITIZE})
    if(DUNLIN_SANITIZE MATCHES "undefined")
        list(APPEND DUNLIN_SANITIZE_FLAGS -fno-sanitize-recover=undefined)
    endif()
endif()

# Within another project that says nothing, CMake compiles without optimisation. A scheduler is not debugged by those who
# use it, and is ten times as slow so.
set(DUNLIN_OPTIMISATION "")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT "$ENV{CXXFLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "(^| )-O")
    set(DUNLIN_OPTIMISATION -O2)
    message(STATUS "dunlin: no CMAKE_BUILD_TYPE: the library is compiled with -O2, and what uses it without optimisation")
endif()

# Every source file of the library; of the assembly only what this processor understands.
function(dunlin_source_files out)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.cpp")
    file(GLOB_RECURSE assembly CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.S")
    if(NOT DUNLIN_SIM)
        list(FILTER sources EXCLUDE REGEX "/src/explorer/")
    else()
        list(FILTER sources EXCLUDE REGEX "/src/replay/") # the simulation for users needs the ordinary build
    endif()
    list(FILTER assembly INCLUDE REGEX "_${DUNLIN_CPU}\\.S$")
    set(${out} ${sources} ${assembly} PARENT_SCOPE)
endfunction()

# A library of `sources`. `kind` is STATIC, or empty for what BUILD_SHARED_LIBS says.
function(dunlin_library name kind sources)
    add_library(${name} ${kind} ${sources})
    target_compile_features(${name} PUBLIC cxx_std_20)
    target_include_directories(${name}
        PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
        PRIVATE "${PROJECT_SOURCE_DIR}/src")
    # -Werror=thread-safety: which lock guards what (platform/annotations.h). Tests break that rule on purpose.
    target_compile_options(${name} PRIVATE ${DUNLIN_WARNINGS} $<$<CXX_COMPILER_ID:Clang>:-Werror=thread-safety> ${DUNLIN_OPTIMISATION}
        -fno-omit-frame-pointer)
    if(DUNLIN_SIM)
        target_compile_definitions(${name} PUBLIC DUNLIN_SIM=1) # its users see the same atomic variables
    endif()
    # Each target that links an instrumented library must be instrumented too.
    target_compile_options(${name} PUBLIC ${DUNLIN_SANITIZE_FLAGS})
    target_link_options(${name} PUBLIC ${DUNLIN_SANITIZE_FLAGS})
    target_link_libraries(${name} PUBLIC Threads::Threads)
    set_target_properties(${name} PROPERTIES
        CXX_EXTENSIONS OFF
        UNITY_BUILD OFF # each file has names of its own, whatever the project around this one does
        POSITION_INDEPENDENT_CODE ON
        CXX_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# Compiles the files of the library several at a time. Those that are named here have names of their own that a neighbour has too: each is compiled by
# itself (a new one is told by the compiler: "redefinition of", "conflicts with").
function(dunlin_compile_together name)
    set(alone chan/timed_call io/byte_stream net/listener net/packet platform/destroyable_lock platform/usable sched/machines/processor
        sched/monitor/retake sched/monitor/monitor sched/preempt/stack_capture)
    list(TRANSFORM alone REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/\\1.cpp")
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
endfunction()

function(dunlin_precompiled_for_ccache target)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>) # ccache asks for it
    endif()
endfunction()

# With DUNLIN_LLD: links a target of the tests with lld, in a third of the time. What stands for a user's program, or is
# about linking, is left to the linker that users have.
function(dunlin_link_fast target)
    if(DUNLIN_LLD)
        cmake_path(GET DUNLIN_LLD PARENT_PATH folder)
        target_link_options(${target} PRIVATE "-B${folder}" -fuse-ld=lld LINKER:--threads=1)
    endif()
endfunction()

# With DUNLIN_PRECOMPILE: precompiles for the files of a library what most of them include of the standard library, and what is named beside it.
# tests/packaging compiles the libraries as a stranger does, without it: there a missing #include is noticed.
function(dunlin_precompile_library name)
    if(NOT DUNLIN_PRECOMPILE OR (DUNLIN_TOGETHER_ABOVE AND "dunlin/dunlin.hpp" IN_LIST ARGN))
        return() # those above the first one are compiled as one or two files then, which read less than a precompiled header takes
    endif()
    dunlin_precompiled_for_ccache(${name})
    if("dunlin/dunlin.hpp" IN_LIST ARGN AND NOT BUILD_SHARED_LIBS)
        # The libraries above the first one share theirs.
        get_property(first GLOBAL PROPERTY dunlin_precompiled_library)
        if(first)
            target_precompile_headers(${name} REUSE_FROM ${first})
            return()
        endif()
        set_property(GLOBAL PROPERTY dunlin_precompiled_library ${name})
    endif()
    set(headers algorithm atomic chrono functional memory mutex optional span string system_error thread vector ${ARGN})
    list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(${name} PRIVATE ${headers})
endfunction()

# Programs that are compiled alike, of one `kind`, share what the compiler makes of the headers: of <dunlin/dunlin.hpp>, which each of their files includes
# itself, and of what is named beside it.
function(dunlin_precompile target kind)
    dunlin_precompiled_for_ccache(${target})
    get_property(first GLOBAL PROPERTY dunlin_precompiled_${kind})
    if(first)
        target_precompile_headers(${target} REUSE_FROM ${first})
    else()
        target_precompile_headers(${target} PRIVATE ${ARGN} <dunlin/dunlin.hpp>)
        set_property(GLOBAL PROPERTY dunlin_precompiled_${kind} ${target})
    endif()
endfunction()

# A program of ours, linked with the library as a stranger's would be. Optimised ones have the lines for traces, and not what a debugger tells of variables,
# which takes a fifth of the time to compile.
function(dunlin_program name sources directory)
    add_executable(${name} ${sources})
    target_compile_options(${name} PRIVATE ${DUNLIN_WARNINGS} -fno-omit-frame-pointer $<$<CONFIG:RelWithDebInfo>:-g1>)
    target_link_libraries(${name} PRIVATE dunlin::dunlin)
    set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY "${directory}")
endfunction()
