// The real binary, called from a test.
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline void spit(const fs::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary).write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

struct Outcome {
  int status = -1;  // 128 + signal if one ended it
  std::string out, err;
};

// A run of the binary with only these TANDEM_ variables set.
class Process {
 public:
  Process(const fs::path& scratch, const Texts& arguments,
          const std::map<std::string, std::string>& environment = {})
      : out_(scratch / "stdout"), err_(scratch / "stderr") {
    pid_ = fork();
    if (pid_ != 0) return;
    // A sanitized binary loads and runs slowly, but its options must reach it, so the environment is kept.
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    redirect("/dev/null", O_RDONLY, STDIN_FILENO);
    redirect(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    std::vector<char*> argv{const_cast<char*>(TANDEM_BINARY)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(TANDEM_BINARY, argv.data());
    _exit(127);
  }

  void signal(int which) const { kill(pid_, which); }
  std::string out_so_far() const { return slurp(out_); }

  Outcome wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(out_), slurp(err_)};
  }

 private:
  static void redirect(const char* path, int flags, int fd) {
    const int opened = open(path, flags, 0600);
    if (opened < 0 || dup2(opened, fd) < 0) _exit(126);
  }

  fs::path out_, err_;
  pid_t pid_ = -1;
};

}  // namespace tandem
