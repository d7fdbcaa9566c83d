# Tests: one GoogleTest binary per folder, one ctest entry per binary (starting a process per test case would cost more
# than most cases do).  A folder without tests is skipped.
if(TANDEM_TESTS)
  find_package(GTest REQUIRED)
endif()

# Seconds that a test binary, and the replay of a corpus, may take.
set(TANDEM_TEST_TIMEOUT 900)
set(TANDEM_REPLAY_TIMEOUT 300)
if(CMAKE_CROSSCOMPILING_EMULATOR)  # which takes 10 to 30 times as long
  set(TANDEM_TEST_TIMEOUT 7200)
  set(TANDEM_REPLAY_TIMEOUT 7200)
endif()

# What a sanitizer is told at run time; every finding ends the process.  Stacks stay where they are: the fake ones of
# detect_stack_use_after_return are not aligned for 64-byte vectors (g++ 12), and AVX-512 kernels fault on them.
set(TANDEM_TEST_ENVIRONMENT
  "ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")

# tandem_add_test(test_base SOURCES a.test.cpp ... [LIBRARIES ...] [LABEL slow])
function(tandem_add_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} tandem_test_support tandem_core GTest::gtest
    GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TANDEM_TEST_TIMEOUT} ENVIRONMENT "${TANDEM_TEST_ENVIRONMENT}"
    LABELS "${ARG_LABEL}")
endfunction()

# tandem_add_fuzz(gguf gguf_fuzz.cpp) makes fuzz_gguf: a fuzzer in the fuzz preset, elsewhere a program that replays
# corpus/gguf/ (and fixed mutations of it) as a test.
function(tandem_add_fuzz name source)
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE tandem_core)
  if(TANDEM_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(fuzz_${name} PRIVATE replay_main.cpp)
    add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT ${TANDEM_REPLAY_TIMEOUT}
      ENVIRONMENT "${TANDEM_TEST_ENVIRONMENT}" LABELS fuzz)
  endif()
endfunction()
