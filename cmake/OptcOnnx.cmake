# ONNX's own C++ library: the targets onnx (protobuf messages, schemas, checker, parser) and onnx_proto.
#
# Its source distribution is fetched by pip, pinned by hash, into a cache that all build folders share
# ($OPTC_CACHE, by default ~/.cache/optc), and its required CMake version is lowered to the one that Debian 12 has.
# find_package(ONNX) is of no use: ONNX's installed configuration wants Protobuf's, which Debian does not ship.

set(OPTC_ONNX_VERSION 1.23.2)
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/onnx-source.txt _onnx_pin REGEX "sha256:")
string(REGEX MATCH "[0-9a-f]+$" OPTC_ONNX_SHA256 "${_onnx_pin}")

if(DEFINED ENV{OPTC_CACHE})
  set(_cache $ENV{OPTC_CACHE})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(_cache $ENV{XDG_CACHE_HOME}/optc)
else()
  set(_cache $ENV{HOME}/.cache/optc)
endif()
set(OPTC_CACHE ${_cache} CACHE PATH "Where fetched sources are kept")
set(OPTC_ONNX_SOURCE ${OPTC_CACHE}/onnx-${OPTC_ONNX_VERSION})

function(_optc_fetch_onnx)
  file(MAKE_DIRECTORY ${OPTC_CACHE})
  file(LOCK ${OPTC_CACHE}/lock GUARD FUNCTION TIMEOUT 600)
  if(EXISTS ${OPTC_ONNX_SOURCE}/CMakeLists.txt)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(work ${OPTC_CACHE}/onnx-unpack)
  set(archive ${OPTC_CACHE}/onnx-${OPTC_ONNX_VERSION}.tar.gz)
  if(NOT EXISTS ${archive})
    message(STATUS "Fetching the source of onnx ${OPTC_ONNX_VERSION} with pip")
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --disable-pip-version-check --no-deps --no-binary onnx
              --require-hashes -r ${PROJECT_SOURCE_DIR}/cmake/onnx-source.txt -d ${OPTC_CACHE}
      RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "pip could not fetch the source of onnx ${OPTC_ONNX_VERSION}; put the file "
                          "onnx-${OPTC_ONNX_VERSION}.tar.gz from PyPI into ${OPTC_CACHE} and run CMake again")
    endif()
  endif()
  file(SHA256 ${archive} hash)
  if(NOT hash STREQUAL OPTC_ONNX_SHA256)
    file(REMOVE ${archive})
    message(FATAL_ERROR "${archive} has SHA-256 ${hash}, expected ${OPTC_ONNX_SHA256}; removed it")
  endif()
  file(REMOVE_RECURSE ${work})
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${work})
  set(lists ${work}/onnx-${OPTC_ONNX_VERSION}/CMakeLists.txt)
  file(READ ${lists} text)
  string(REPLACE "cmake_minimum_required(VERSION 3.26)" "cmake_minimum_required(VERSION 3.25)" text "${text}")
  file(WRITE ${lists} "${text}")
  file(RENAME ${work}/onnx-${OPTC_ONNX_VERSION} ${OPTC_ONNX_SOURCE})
  file(REMOVE_RECURSE ${work})
endfunction()

_optc_fetch_onnx()

set(ONNX_ML ON CACHE BOOL "" FORCE)
set(ONNX_INSTALL OFF CACHE BOOL "" FORCE)
set(ONNX_BUILD_PYTHON OFF CACHE BOOL "" FORCE)
set(ONNX_BUILD_TESTS OFF CACHE BOOL "" FORCE)
set(ONNX_USE_PROTOBUF_SHARED_LIBS OFF CACHE BOOL "" FORCE)
set(ONNX_WERROR OFF CACHE BOOL "" FORCE)
function(_optc_add_onnx)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
  set(CMAKE_EXPORT_COMPILE_COMMANDS OFF)
  add_subdirectory(${OPTC_ONNX_SOURCE} ${PROJECT_BINARY_DIR}/onnx EXCLUDE_FROM_ALL SYSTEM)
endfunction()
_optc_add_onnx()
