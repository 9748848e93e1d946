# What is installed: the public headers, the library, dunlinConfig.cmake for find_package(dunlin), dunlin.pc for pkg-config.
include_guard(GLOBAL)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dunlin")

install(TARGETS dunlin dunlin_debug EXPORT dunlinTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/dunlin" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.ipp")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# For debuggers: `source` and `settings set` lines name the first two; the program finds the third beside it or in share/dunlin.
set(debuggers "${PROJECT_SOURCE_DIR}/tools/debuggers")
install(FILES "${debuggers}/dunlin_gdb.py" "${debuggers}/dunlin_lldb.py" "${debuggers}/dunlin_goroutines.py"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/dunlin")
set(trace "${PROJECT_SOURCE_DIR}/tools/trace")
install(FILES "${trace}/dunlin_trace.py" "${trace}/dunlin_trace_perfetto.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/dunlin")
install(PROGRAMS "${debuggers}/dunlin-core" "${trace}/dunlin-trace" DESTINATION "${CMAKE_INSTALL_BINDIR}")
if(BUILD_SHARED_LIBS)
    # gdb loads it by itself with the library, where it is installed with the same prefix as gdb.
    configure_file("${PROJECT_SOURCE_DIR}/cmake/gdb-auto-load.py.in" "${PROJECT_BINARY_DIR}/gdb-auto-load.py" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/gdb-auto-load.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/gdb/auto-load${CMAKE_INSTALL_FULL_LIBDIR}"
        RENAME "libdunlin.so.${PROJECT_VERSION}-gdb.py")
endif()

install(EXPORT dunlinTargets NAMESPACE dunlin:: DESTINATION "${package_dir}")

if(TARGET dunlin_tls)
    # In an export of its own: who has no OpenSSL, or does not ask for it, finds the library all the same.
    install(TARGETS dunlin_tls EXPORT dunlinTlsTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(EXPORT dunlinTlsTargets NAMESPACE dunlin:: DESTINATION "${package_dir}")
endif()

if(TARGET dunlin_nats)
    install(TARGETS dunlin_nats EXPORT dunlinNatsTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(EXPORT dunlinNatsTargets NAMESPACE dunlin:: DESTINATION "${package_dir}")
    install(FILES "${PROJECT_SOURCE_DIR}/cmake/FindDunlinLibnats.cmake" DESTINATION "${package_dir}")
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/dunlinConfig.cmake.in" "${PROJECT_BINARY_DIR}/dunlinConfig.cmake"
    INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dunlinConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/dunlinConfig.cmake" "${PROJECT_BINARY_DIR}/dunlinConfigVersion.cmake"
    DESTINATION "${package_dir}")

# The .pc file finds its prefix from where it stands, so that an installed tree can be moved and `cmake --install --prefix` is right.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" OUTPUT_VARIABLE pc_to_prefix)
list(JOIN DUNLIN_SANITIZE_FLAGS " " pc_flags)
# What a static library needs, its user links.
set(pc_private "")
if(BUILD_SHARED_LIBS)
    set(pc_private ".private")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/dunlin.pc.in" "${PROJECT_BINARY_DIR}/dunlin.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/dunlin.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file("${PROJECT_SOURCE_DIR}/cmake/dunlin-debug.pc.in" "${PROJECT_BINARY_DIR}/dunlin-debug.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/dunlin-debug.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(TARGET dunlin_tls)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/dunlin-tls.pc.in" "${PROJECT_BINARY_DIR}/dunlin-tls.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/dunlin-tls.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
if(TARGET dunlin_nats)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/dunlin-nats.pc.in" "${PROJECT_BINARY_DIR}/dunlin-nats.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/dunlin-nats.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()

# All that the rules above need.
if(NOT TARGET dunlin_installed)
    add_custom_target(dunlin_installed DEPENDS dunlin dunlin_debug)
    foreach(optional IN ITEMS dunlin_tls dunlin_nats)
        if(TARGET ${optional})
            add_dependencies(dunlin_installed ${optional})
        endif()
    endforeach()
endif()

# Removes what the last installation from this build has written.
if(NOT TARGET uninstall)
    add_custom_target(uninstall
        COMMAND ${CMAKE_COMMAND} -D "manifest=${PROJECT_BINARY_DIR}/install_manifest.txt" -P "${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake"
        COMMENT "Removing what was installed"
        VERBATIM)
endif()
