"""The files that let builds find a bundle: CMakeLists.txt and NAME.pc."""

from __future__ import annotations

from alpenglow.bundle.entry import Api


def cmake(name: str, api: Api, embedded: bool) -> str:
    """Return the text of CMakeLists.txt: a target to link with, and the example on its own."""
    threads = _THREADS if api == "dynamic" else ""
    weights = "" if embedded else _WEIGHTS
    return (
        _CMAKE.replace("@THREADS@", threads).replace("@WEIGHTS@", weights).replace("@NAME@", name)
    )


def pkg_config(name: str, target: str, version: str) -> str:
    """Return the text of NAME.pc."""
    return f"""prefix=${{pcfiledir}}

Name: {name}
Description: {name}, a neural network compiled by Alpenglow for {target}
Version: {version}
Cflags: -I${{prefix}}
Libs: ${{prefix}}/{name}.o
"""


_CMAKE = """# add_subdirectory(DIR), then target_link_libraries(PROGRAM PRIVATE @NAME@).
cmake_minimum_required(VERSION 3.13)
project(@NAME@ C)

add_library(@NAME@ INTERFACE)
target_include_directories(@NAME@ INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(@NAME@ INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/@NAME@.o)
@THREADS@
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  add_executable(@NAME@_example main.c)
  set_target_properties(@NAME@_example PROPERTIES C_STANDARD 11)
  target_link_libraries(@NAME@_example PRIVATE @NAME@)
@WEIGHTS@endif()
"""

_WEIGHTS = """  target_compile_definitions(@NAME@_example PRIVATE
    WEIGHTS="${CMAKE_CURRENT_SOURCE_DIR}/@NAME@.weights.bin")
"""

_THREADS = """
if(NOT TARGET alpenglow_threads)
  set(THREADS_PREFER_PTHREAD_FLAG ON)
  find_package(Threads)
  if(Threads_FOUND)
    add_library(alpenglow_threads STATIC EXCLUDE_FROM_ALL alpenglow_threads.c)
    set_target_properties(alpenglow_threads PROPERTIES C_STANDARD 11)
    target_include_directories(alpenglow_threads PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(alpenglow_threads PUBLIC Threads::Threads)
  endif()
endif()
"""
