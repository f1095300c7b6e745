"""The files that let builds find a bundle: CMakeLists.txt and NAME.pc."""

from __future__ import annotations

from alpenglow.bundles.entry import Api


def cmake(name: str, api: Api, embedded: bool, file: str) -> str:
    """Return the text of CMakeLists.txt: a target to link with, and the example on its own.

    `file` is the one that is linked, or a source in C.
    """
    threads = _THREADS if api == "dynamic" else ""
    weights = "" if embedded else _WEIGHTS
    return (
        _CMAKE.replace("@LIBRARY@", _SOURCE if file.endswith(".c") else _LINKED)
        .replace("@THREADS@", threads)
        .replace("@WEIGHTS@", weights)
        .replace("@FILE@", file)
        .replace("@NAME@", name)
    )


def pkg_config(name: str, target: str, version: str, libraries: str) -> str:
    """Return the text of NAME.pc; `libraries` is what linkers are told."""
    return f"""prefix=${{pcfiledir}}

Name: {name}
Description: {name}, a neural network compiled by Alpenglow for {target}
Version: {version}
Cflags: -I${{prefix}}
Libs: {libraries}
"""


_CMAKE = """# add_subdirectory(DIR), then target_link_libraries(PROGRAM PRIVATE @NAME@).
cmake_minimum_required(VERSION 3.13)
project(@NAME@ C)

@LIBRARY@@THREADS@
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  add_executable(@NAME@_example main.c)
  set_target_properties(@NAME@_example PROPERTIES C_STANDARD 11)
  target_link_libraries(@NAME@_example PRIVATE @NAME@)
@WEIGHTS@endif()
"""

_LINKED = """add_library(@NAME@ INTERFACE)
target_include_directories(@NAME@ INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(@NAME@ INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/@FILE@)
"""

_SOURCE = """add_library(@NAME@ STATIC @FILE@)
set_target_properties(@NAME@ PROPERTIES C_STANDARD 11)
target_include_directories(@NAME@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
# Kernels want more than the default; the machine is named by CMAKE_C_FLAGS, -march=native.
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(@NAME@ PRIVATE -O3 -Wno-psabi)
endif()
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
