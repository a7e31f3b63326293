# Helpers for the targets of this repository.

# optc_flags(TARGET): warnings are errors, and floating point means what the source says (no contraction).
function(optc_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno)
endfunction()

# optc_library(NAME SOURCES file... [DEPENDS target...] [PRIVATE target...])
# makes the static library optc_NAME of the current folder; its headers are included from the repository root.
function(optc_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  if(ARG_SOURCES)
    add_library(optc_${name} STATIC ${ARG_SOURCES})
    target_include_directories(optc_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(optc_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
    optc_flags(optc_${name})
  else()
    add_library(optc_${name} INTERFACE)
    target_include_directories(optc_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(optc_${name} INTERFACE ${ARG_DEPENDS})
  endif()
endfunction()

# optc_test(NAME SOURCES file... [DEPENDS target...] [LABELS label...])
# makes the GoogleTest program tests/NAME. Dependencies that do not exist in this build are an error, except that a test
# of a folder which is switched off is to be guarded by its caller.
function(optc_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE OPTC_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             OPTC_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gtest_main Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  optc_flags(${name})
  add_test(NAME ${name} COMMAND ${name} --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${name}.xml)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 1200)
endfunction()
