# tandem_flags: what every file of the project is compiled and linked with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# No NDEBUG: TANDEM_CHECKS alone decides about checks.
if(TANDEM_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_CCACHE})
endif()
find_program(TANDEM_LLD ld.lld)
if(TANDEM_LLD AND NOT CMAKE_CROSSCOMPILING)  # a cross g++ wants it under a name that Debian does not give it
  add_link_options(-fuse-ld=lld)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

add_library(tandem_flags INTERFACE)
target_include_directories(tandem_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_definitions(tandem_flags INTERFACE TANDEM_VERSION="${PROJECT_VERSION}")
# Contraction to FMA would make a result depend on the optimizer; kernels write their FMAs out.
target_compile_options(tandem_flags INTERFACE -Wall -Wextra -Wshadow -ffp-contract=off)
target_link_libraries(tandem_flags INTERFACE
  Threads::Threads fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json
  PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH)

if(TANDEM_WERROR)
  target_compile_options(tandem_flags INTERFACE -Werror)
endif()
if(TANDEM_CHECKS)
  target_compile_definitions(tandem_flags INTERFACE TANDEM_DEBUG=1)
endif()
if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()
if(TANDEM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TANDEM_FUZZ needs clang, got ${CMAKE_CXX_COMPILER_ID}: use the preset `fuzz`")
  endif()
  target_compile_options(tandem_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Fuzz targets read files and run no kernel: they get one level, for which the build takes a third of the time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT TANDEM_FUZZ)
  set(TANDEM_LEVELS base avx2 avx512 avx512_bf16)
  target_compile_definitions(tandem_flags INTERFACE TANDEM_HAVE_X86_LEVELS=1)
else()
  set(TANDEM_LEVELS base)
endif()
