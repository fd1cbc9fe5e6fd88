# uninstall: removes the files that the last `cmake --install` of this build has put down.
if(NOT EXISTS ${MANIFEST})
    message(FATAL_ERROR "nothing was installed from here: ${MANIFEST} is not there")
endif()
file(STRINGS ${MANIFEST} files)
foreach(file IN LISTS files)
    file(REMOVE "$ENV{DESTDIR}${file}")
    message(STATUS "removed $ENV{DESTDIR}${file}")
endforeach()
