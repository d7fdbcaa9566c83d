#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

namespace tandem {
namespace {

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("tandem", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("tandem: %v");
    made.set_level(spdlog::level::info);
    return made;
  }();
  return instance;
}

}  // namespace

void set_verbosity(int verbosity) {
  logger().set_level(verbosity <= 0   ? spdlog::level::err
                     : verbosity == 1 ? spdlog::level::warn
                                      : spdlog::level::info);
}

void log_line(LogLevel level, std::string_view message) noexcept {
  try {
    switch (level) {
      case LogLevel::Info:
        logger().info("{}", message);
        break;
      case LogLevel::Warning:
        logger().warn("warning: {}", message);
        break;
      case LogLevel::Error:
        logger().error("error: {}", message);
        break;
    }
  } catch (...) {  // a message that cannot be written is no reason to stop
  }
}

}  // namespace tandem
