# Kernel files (*.cpu.cpp) are compiled once per ISA level, each time into a namespace of its own.
set(TANDEM_LEVEL_FLAGS_base "")
set(TANDEM_LEVEL_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(TANDEM_LEVEL_FLAGS_avx512 ${TANDEM_LEVEL_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
  -mavx512vbmi -mprefer-vector-width=512)
set(TANDEM_LEVEL_FLAGS_avx512_bf16 ${TANDEM_LEVEL_FLAGS_avx512} -mavx512bf16)

# Adds every kernel file below src/ to `target`, at every level.  -O3 in all presets: the speed of a kernel decides how
# long the tests run.  The math flags give up errno and trap flags only, never a result.
function(tandem_add_kernels target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpu.cpp)
  if(NOT sources)
    return()
  endif()
  foreach(level IN LISTS TANDEM_LEVELS)
    add_library(tandem_kernels_${level} OBJECT ${sources})
    target_link_libraries(tandem_kernels_${level} PRIVATE tandem_flags)
    target_compile_definitions(tandem_kernels_${level} PRIVATE TANDEM_ISA=isa_${level})
    target_compile_options(tandem_kernels_${level} PRIVATE -O3 -fno-exceptions -fno-rtti -fno-math-errno
      -fno-trapping-math ${TANDEM_LEVEL_FLAGS_${level}})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:tandem_kernels_${level}>)
  endforeach()
endfunction()
