# How programs find the library: one archive of all of it beside the shared object, a file for pkg-config and one for
# find_package(). The archive is a single object whose only global symbols are the calls of include/grapevine.h, so its
# names meet none of the program's; what it needs of others stays outside.

set(parts "")
foreach(part peer env averaging distill replica gossip kernels base)
    list(APPEND parts $<TARGET_FILE:gv_${part}>)
endforeach()
set(archive ${CMAKE_BINARY_DIR}/libgrapevine.a)
set(whole ${CMAKE_BINARY_DIR}/generated/grapevine.o)
add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${whole} $<TARGET_OBJECTS:gv_library> -Wl,--start-group ${parts} -Wl,--end-group
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=gv_* ${whole}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcs ${archive} ${whole}
    DEPENDS $<TARGET_OBJECTS:gv_library> ${parts} COMMAND_EXPAND_LISTS VERBATIM)
if(GRAPEVINE_SANITIZER) # such a program needs the compiler's own runtime, too: nobody installs it
    add_custom_target(grapevine_archive DEPENDS ${archive})
else()
    add_custom_target(grapevine_archive ALL DEPENDS ${archive})
endif()

# What a program that links the archive links as well, by the names of its linker.
set(needs ${UV_LIBRARIES} ${SODIUM_LIBRARIES} ${JANSSON_LIBRARIES} ${PROTOBUF_C_LIBRARIES} ${ZLIB_LIBRARIES} ${INIH_LIBRARIES}
    ${PCRE2_LIBRARIES} ${OPENBLAS_LIBRARIES} ${MSGPACK_LIBRARIES} ${PNG_LIBRARIES})
if(GRAPEVINE_HAS_DNNL)
    list(APPEND needs dnnl)
endif()
if(GRAPEVINE_HAS_IPSEC_MB)
    list(APPEND needs IPSec_MB)
endif()
list(APPEND needs ${OpenMP_C_LIB_NAMES} pthread dl m)
list(REMOVE_DUPLICATES needs)
set(need_folders ${UV_LIBRARY_DIRS} ${SODIUM_LIBRARY_DIRS} ${OPENBLAS_LIBRARY_DIRS} ${MSGPACK_LIBRARY_DIRS})
list(REMOVE_DUPLICATES need_folders)
set(pc_needs "")
foreach(folder ${need_folders})
    string(APPEND pc_needs " -L${folder}")
endforeach()
foreach(need ${needs})
    string(APPEND pc_needs " -l${need}")
endforeach()
configure_file(library/grapevine.pc.in generated/grapevine.pc @ONLY)

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/grapevine)
configure_package_config_file(library/grapevineConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/grapevineConfig.cmake
    INSTALL_DESTINATION ${package_folder} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR
    NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/grapevineConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# Either may not have been built: the program alone may be. `cmake --install DIR --component library` installs these alone.
install(TARGETS grapevine_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT library OPTIONAL)
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library OPTIONAL)
install(FILES include/grapevine.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/generated/grapevine.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/generated/grapevineConfig.cmake ${CMAKE_BINARY_DIR}/generated/grapevineConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT library)
