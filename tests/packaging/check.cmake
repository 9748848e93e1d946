# Uses the library as a stranger would: `way` is find_package, add_subdirectory or pkg_config. Run by ctest (tests/CMakeLists.txt).
cmake_minimum_required(VERSION 3.22)

function(run)
    execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    message("$ ${ARGV}\n${output}")
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "failed with ${result}")
    endif()
endfunction()

set(consumer "${CMAKE_CURRENT_LIST_DIR}/consumer")
set(prefix "${scratch}/a prefix")
file(REMOVE_RECURSE "${scratch}")
file(MAKE_DIRECTORY "${scratch}")

if(NOT way STREQUAL "find_package")
    set(asio "") # <dunlin/asio.hpp> is looked at where it has been installed
endif()
set(configure ${CMAKE_COMMAND} -G "${generator}" -S "${consumer}" -B "${scratch}/build"
    "-DCMAKE_CXX_COMPILER=${compiler}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${launcher}" "-DWITH_TLS=${tls}" "-DASIO_INCLUDE=${asio}")

if(way STREQUAL "add_subdirectory")
    # Not optimised: it is about what is built and found, and takes a third of the time so.
    # A project that compiles its own sources in one leaves ours alone.
    run(${configure} "-DDUNLIN_SOURCE=${source}" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_UNITY_BUILD=ON -DDUNLIN_PRECOMPILE=ON)
    # One that does not say how: the library is optimised, and that is said.
    execute_process(COMMAND ${configure} "-DDUNLIN_SOURCE=${source}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -B "${scratch}/untyped"
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0 OR NOT output MATCHES "no CMAKE_BUILD_TYPE: the library is compiled with -O2")
        message(FATAL_ERROR "a build without a type says nothing:\n${output}")
    endif()
    file(READ "${scratch}/untyped/compile_commands.json" commands)
    if(NOT commands MATCHES " -O2 [^\n]*src/runtime\\.cpp")
        message(FATAL_ERROR "a build without a type is not optimised")
    endif()
else()
    run(${CMAKE_COMMAND} --install "${build}" --prefix "${prefix}")
    file(COPY "${build}/install_manifest.txt" DESTINATION "${scratch}")
    file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/include/*")
    foreach(file IN LISTS installed)
        if(NOT file MATCHES "^include/dunlin/")
            message(FATAL_ERROR "installed outside include/dunlin: ${file}")
        endif()
    endforeach()
endif()

if(way STREQUAL "find_package")
    run(${configure} "-DCMAKE_PREFIX_PATH=${prefix}" "-DDUNLIN_VERSION=${version}")
    # A version that is not this one must be refused.
    execute_process(COMMAND ${configure} "-DCMAKE_PREFIX_PATH=${prefix}" -DDUNLIN_VERSION=0.99 -B "${scratch}/refused"
        RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
        message(FATAL_ERROR "find_package(dunlin 0.99) found version ${version}")
    endif()
    # Nor a component that there is not.
    execute_process(COMMAND ${configure} "-DCMAKE_PREFIX_PATH=${prefix}" "-DDUNLIN_VERSION=${version}" -DCOMPONENT=smoke -B "${scratch}/refused_too"
        RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
        message(FATAL_ERROR "find_package(dunlin COMPONENTS smoke) found it")
    endif()
elseif(way STREQUAL "pkg_config")
    set(ENV{PKG_CONFIG_PATH} "${prefix}/${libdir}/pkgconfig")
    execute_process(COMMAND ${pkg_config} --cflags --libs --static dunlin
        RESULT_VARIABLE result OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "pkg-config does not know dunlin")
    endif()
    separate_arguments(flags UNIX_COMMAND "${flags}")
    file(MAKE_DIRECTORY "${scratch}/build")
    run(${compiler} -std=c++20 "${consumer}/main.cpp" -o "${scratch}/build/consumer" ${flags})
    if(tls)
        execute_process(COMMAND ${pkg_config} --cflags --libs --static dunlin-tls
            RESULT_VARIABLE result OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(NOT result EQUAL 0)
            message(FATAL_ERROR "pkg-config does not know dunlin-tls")
        endif()
        separate_arguments(flags UNIX_COMMAND "${flags}")
        run(${compiler} -std=c++20 "${consumer}/tls.cpp" -o "${scratch}/build/consumer_tls" ${flags})
    endif()
    set(ENV{LD_LIBRARY_PATH} "${prefix}/${libdir}")
endif()

if(NOT way STREQUAL "pkg_config")
    run(${CMAKE_COMMAND} --build "${scratch}/build")
endif()
run("${scratch}/build/consumer")
if(tls)
    run("${scratch}/build/consumer_tls")
endif()
if(asio)
    run("${scratch}/build/consumer_asio")
endif()

# What was installed can be removed, and nothing of it is left.
if(NOT way STREQUAL "add_subdirectory")
    execute_process(COMMAND ${CMAKE_COMMAND} -D "manifest=${scratch}/install_manifest.txt" -D "prefix=${scratch}/another" -P "${source}/cmake/uninstall.cmake"
        RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
        message(FATAL_ERROR "uninstall removes what lies in another folder than it was told")
    endif()
    run(${CMAKE_COMMAND} -D "manifest=${scratch}/install_manifest.txt" -D "prefix=${prefix}" -P "${source}/cmake/uninstall.cmake")
    file(GLOB_RECURSE left "${prefix}/*")
    if(left)
        message(FATAL_ERROR "left behind: ${left}")
    endif()
    foreach(folder IN ITEMS include/dunlin ${libdir}/cmake/dunlin)
        if(EXISTS "${prefix}/${folder}")
            message(FATAL_ERROR "left behind: ${folder}")
        endif()
    endforeach()
endif()
