#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/faulty_files.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A directory of the test's own, removed at the end.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tandem-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string at(const std::string& name) const { return directory_ + "/" + name; }
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_))
      names.push_back(entry.path().filename().string());
    return names;
  }

  std::string directory_;
};

template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Code::Internal, "");
}

TEST_F(FileTest, WritesAndMapsAndReads) {
  const std::string path = at("a.bin");
  write_file_atomic(path, std::string_view("hello"));
  EXPECT_EQ(read_file(path, 5), "hello");
  MappedFile file = MappedFile::open(path);
  ASSERT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(file.bytes()[4], std::byte{'o'});
  EXPECT_EQ(file.path(), path);
  const std::byte* address = file.bytes().data();
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_EQ(moved.path(), path);
  EXPECT_EQ(listing(), std::vector<std::string>{"a.bin"});
}

TEST_F(FileTest, EmptyFileMapsToNothing) {
  write_file_atomic(at("e"), std::string_view());
  EXPECT_TRUE(MappedFile::open(at("e")).bytes().empty());
  EXPECT_EQ(read_file(at("e"), 0), "");
}

TEST_F(FileTest, LargeAndSmallPiecesKeepTheirOrder) {
  std::string want;
  write_file_atomic(at("big"), [&want](const ByteSink& sink) {
    for (size_t n :
         {size_t{3}, size_t{300000}, size_t{1}, size_t{262143}, size_t{262144}, size_t{0}, size_t{7}}) {
      std::string piece(n, ' ');
      for (size_t i = 0; i < n; ++i) piece[i] = static_cast<char>((i * 7 + n) % 251);
      want += piece;
      sink(std::as_bytes(std::span(piece.data(), piece.size())));
    }
  });
  EXPECT_EQ(read_file(at("big"), size_t{1} << 20), want);
}

TEST_F(FileTest, ReadingRefusesWhatItShould) {
  EXPECT_EQ(error_of([&] { MappedFile::open(at("none")); }).code(), Code::Io);
  EXPECT_EQ(error_of([&] { read_file(at("none"), 10); }).code(), Code::Io);
  EXPECT_EQ(error_of([&] { MappedFile::open(directory_); }).code(), Code::Io);
  EXPECT_EQ(error_of([&] { read_file(directory_, 10); }).code(), Code::Io);
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { MappedFile::open(at("fifo")); }).code(), Code::Io);
  write_file_atomic(at("six"), std::string_view("123456"));
  const Error e = error_of([&] { read_file(at("six"), 5); });
  EXPECT_EQ(e.code(), Code::BadData);
  EXPECT_NE(std::string(e.what()).find("six: is larger than the 5 bytes"), std::string::npos) << e.what();
}

TEST_F(FileTest, ShrunkFileIsNoticed) {
  write_file_atomic(at("s"), std::string_view("123456"));
  const MappedFile file = MappedFile::open(at("s"));
  file.check_size();
  fs::resize_file(at("s"), 9);
  file.check_size();
  fs::resize_file(at("s"), 2);
  EXPECT_EQ(error_of([&] { file.check_size(); }).code(), Code::Io);
}

TEST_F(FileTest, ReplacingKeepsPermissionsAndLinks) {
  write_file_atomic(at("real"), std::string_view("old"));
  ASSERT_EQ(::chmod(at("real").c_str(), 0600), 0);
  fs::create_symlink("real", at("link"));
  write_file_atomic(at("link"), std::string_view("new"));
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(read_file(at("real"), 9), "new");
  struct stat status;
  ASSERT_EQ(::stat(at("real").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(FileTest, ThrowingProducerLeavesTheOldFile) {
  write_file_atomic(at("f"), std::string_view("old"));
  const Error e = error_of([&] {
    write_file_atomic(at("f"), [](const ByteSink& sink) {
      sink(std::vector<std::byte>(size_t{1} << 20));
      fail(Code::Cancelled, "stop");
    });
  });
  EXPECT_EQ(e.code(), Code::Cancelled);
  EXPECT_EQ(read_file(at("f"), 9), "old");
  EXPECT_EQ(listing(), std::vector<std::string>{"f"});
}

TEST_F(FileTest, CheckWritableLeavesNothingAndFindsTrouble) {
  check_writable(at("new"));
  EXPECT_TRUE(listing().empty());
  write_file_atomic(at("f"), std::string_view("old"));
  check_writable(at("f"));
  EXPECT_EQ(read_file(at("f"), 9), "old");
  EXPECT_EQ(listing().size(), 1u);
  for (const std::string& bad :
       {at("missing/f"), at("f/below"), directory_, directory_ + "/", std::string()}) {
    EXPECT_EQ(error_of([&] { check_writable(bad); }).code(), Code::Io) << bad;
  }
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { check_writable(at("fifo")); }).code(), Code::Io);
  EXPECT_EQ(error_of([&] { write_file_atomic(at("fifo"), std::string_view("x")); }).code(), Code::Io);
}

TEST_F(FileTest, DirectoriesAreMadeOnce) {
  EXPECT_TRUE(make_directory(at("d")));
  EXPECT_FALSE(make_directory(at("d")));
  EXPECT_TRUE(make_directory(at("d/e/")));
  EXPECT_TRUE(fs::is_directory(at("d/e")));
  write_file_atomic(at("f"), std::string_view("x"));
  for (const std::string& bad : {at("f"), at("no/d"), std::string()})
    EXPECT_EQ(error_of([&] { make_directory(bad); }).code(), Code::Io) << bad;
}

TEST_F(FileTest, RemovingWhatIsNotThereIsNoFailure) {
  write_file_atomic(at("f"), std::string_view("x"));
  remove_file(at("f"));
  EXPECT_FALSE(fs::exists(at("f")));
  remove_file(at("f"));
  EXPECT_EQ(error_of([&] { remove_file(directory_); }).code(), Code::Io);
}

TEST_F(FileTest, OnlyTemporariesOfDeadProcessesAreRemoved) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const std::string abandoned = fmt::format("ck-1.tmp-{}-0", dead);
  const std::vector<std::string> kept = {fmt::format("ck-1.tmp-{}-0", ::getpid()),
                                         fmt::format("other.tmp-{}-0", dead),
                                         fmt::format("ck-1.tmp-{}-0x", dead),
                                         fmt::format("ck-1.tmp-{}", dead),
                                         "ck-1.tmp--5-0",
                                         "ck-1"};
  for (const std::string& name : kept) write_file_atomic(at(name), std::string_view("x"));
  write_file_atomic(at(abandoned), std::string_view("x"));
  EXPECT_EQ(remove_abandoned_temporaries(directory_, "ck-"), 1u);
  EXPECT_FALSE(fs::exists(at(abandoned)));
  for (const std::string& name : kept) EXPECT_TRUE(fs::exists(at(name))) << name;
  EXPECT_EQ(remove_abandoned_temporaries(at("none"), "ck-"), 0u);
}

const std::string kNames[] = {"a", "b"};

TEST_F(FileTest, DirectoriesAreReplacedWhole) {
  const auto write = [&](const std::string& text) {
    write_directory_atomic(at("d"), kNames, [&](const std::string& temporary) {
      EXPECT_EQ(fs::path(temporary).parent_path(), directory_);
      write_file_atomic(temporary + "/a", std::string_view(text));
    });
  };
  write("one");
  EXPECT_EQ(read_file(at("d/a"), 10), "one");
  write_file_atomic(at("d/b"), std::string_view("goes"));
  write("two");
  EXPECT_EQ(read_file(at("d/a"), 10), "two");
  EXPECT_FALSE(fs::exists(at("d/b")));
  EXPECT_EQ(listing().size(), 1u);
  EXPECT_NO_THROW(check_writable_directory(at("d"), kNames));
  EXPECT_NO_THROW(check_writable_directory(at("new"), kNames));
  EXPECT_EQ(listing().size(), 1u);
}

TEST_F(FileTest, OtherDirectoriesAreNotTouched) {
  const auto refused = [&](const std::string& path, Code code, const std::string& part) {
    const auto nothing = [](const std::string&) { FAIL(); };
    for (const Error& e : {error_of([&] { write_directory_atomic(path, kNames, nothing); }),
                           error_of([&] { check_writable_directory(path, kNames); })}) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  write_file_atomic(at("file"), std::string_view("x"));
  refused(at("file"), Code::Usage, "is no directory");
  fs::create_directories(at("d/a"));  // a directory with a known name
  refused(at("d"), Code::Usage, "holds a, which would be lost");
  fs::create_directory(at("other"));
  write_file_atomic(at("other/c"), std::string_view("x"));
  refused(at("other"), Code::Usage, "holds c");
  fs::create_directory_symlink(at("other"), at("link"));
  refused(at("link"), Code::Usage, "is no directory");
  refused(at("none/d"), Code::Io, "temporary directory");
  refused("", Code::Usage, "without a name");
  EXPECT_EQ(listing().size(), 4u);
}

class FileFaultTest : public FileTest {
 protected:
  FaultyFiles files_;
};

TEST_F(FileFaultTest, EveryCallFailsOnceAndTheFileIsOldOrNew) {
  const std::string old_text = "old contents";
  const std::string new_text(600000, 'n');  // several writes
  const auto write_new = [&] {
    write_file_atomic(at("f"), [&](const ByteSink& sink) {
      for (size_t i = 0; i < new_text.size(); i += 100000) {
        sink(std::as_bytes(std::span(new_text.data() + i, 100000)));
      }
    });
  };
  write_file_atomic(at("f"), old_text);
  faults.n_calls = 0;
  write_new();
  const int n_calls = faults.n_calls;
  ASSERT_GE(n_calls, 8);
  std::vector<std::string> order;
  for (int i = 0; i < n_calls; ++i) {
    write_file_atomic(at("f"), old_text);
    faults.n_calls = 0;
    faults.fail_at = i;
    // The last call closes the directory; its result tells nothing and is not looked at.
    bool thrown = false;
    try {
      write_new();
    } catch (const Error& e) {
      thrown = true;
      EXPECT_EQ(e.code(), Code::Io);
      EXPECT_NE(std::string(e.what()).find(at("f")), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("Input/output error"), std::string::npos) << e.what();
    }
    faults.fail_at = -1;
    order.push_back(faults.failed);
    EXPECT_EQ(thrown, i != n_calls - 1) << faults.failed << " at call " << i;
    const std::string text = read_file(at("f"), size_t{1} << 20);
    const bool renamed = i > n_calls - 4;  // what fails after the rename leaves the new file
    EXPECT_EQ(text, renamed ? new_text : old_text) << faults.failed << " at call " << i;
    EXPECT_EQ(listing(), std::vector<std::string>{"f"}) << faults.failed << " at call " << i;
  }
  const std::vector<std::string> end(order.end() - 6, order.end());
  EXPECT_EQ(end, (std::vector<std::string>{"fsync", "close", "rename", "open", "fsync", "close"}));
}

TEST_F(FileFaultTest, ShortAndInterruptedWritesAreContinued) {
  faults.max_write_bytes = 7;
  const std::string text = "a text that takes several writes of seven bytes";
  write_file_atomic(at("f"), text);
  EXPECT_EQ(read_file(at("f"), 100), text);
}

TEST_F(FileFaultTest, SwallowedWriteErrorStillFails) {
  write_file_atomic(at("f"), std::string_view("old"));
  faults.n_calls = 0;
  faults.fail_at = 1;
  const std::vector<std::byte> large(size_t{1} << 20);
  const Error e = error_of(
      [&] { write_file_atomic(at("f"), [&](const ByteSink& sink) { EXPECT_THROW(sink(large), Error); }); });
  EXPECT_EQ(faults.failed, "write");
  EXPECT_EQ(e.code(), Code::Io);
  EXPECT_EQ(read_file(at("f"), 9), "old");
  EXPECT_EQ(listing(), std::vector<std::string>{"f"});
}

TEST_F(FileFaultTest, DirectoryThatCannotBeFlushedIsAccepted) {
  write_file_atomic(at("f"), std::string_view("a"));
  const int n_calls = faults.n_calls;
  faults.n_calls = 0;
  faults.fail_at = n_calls - 2;
  faults.error = EINVAL;
  write_file_atomic(at("f"), std::string_view("b"));
  EXPECT_EQ(faults.failed, "fsync");
  EXPECT_EQ(read_file(at("f"), 9), "b");
}

TEST_F(FileFaultTest, CheckWritableReportsEveryFailureAndLeavesNothing) {
  for (int i = 0; i < 4; ++i) {  // open, write, fsync, close
    faults.n_calls = 0;
    faults.fail_at = i;
    faults.error = ENOSPC;
    const Error e = error_of([&] { check_writable(at("f")); });
    EXPECT_EQ(e.code(), Code::Io) << faults.failed;
    EXPECT_NE(std::string(e.what()).find("No space left"), std::string::npos) << e.what();
    EXPECT_TRUE(listing().empty()) << faults.failed;
  }
}

// Each call fails once: the old directory or the new one is there, whole, and nothing beside it.
TEST_F(FileFaultTest, DirectoriesAreOldOrNew) {
  for (const bool exists : {false, true}) {
    bool finished = false;
    for (int fail_at = 0; !finished; ++fail_at) {
      ASSERT_LT(fail_at, 100);
      fs::remove_all(at("d"));
      if (exists) {
        fs::create_directory(at("d"));
        write_file_atomic(at("d/a"), std::string_view("old"));
      }
      faults.n_calls = 0;
      faults.fail_at = fail_at;
      faults.failed.clear();
      std::string error;
      try {
        write_directory_atomic(at("d"), kNames, [](const std::string& temporary) {
          write_file_atomic(temporary + "/a", std::string_view("new"));
          write_file_atomic(temporary + "/b", std::string_view("new"));
        });
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Code::Io);
        error = e.what();
      }
      finished = faults.failed.empty();
      faults.fail_at = -1;
      EXPECT_TRUE(!finished || error.empty()) << error;
      if (fs::exists(at("d/b"))) {
        EXPECT_EQ(read_file(at("d/a"), 10), "new");
      } else {
        EXPECT_EQ(fs::exists(at("d")), exists) << faults.failed;
        if (exists) {
          EXPECT_EQ(read_file(at("d/a"), 10), "old");
        }
        EXPECT_FALSE(error.empty());
      }
      EXPECT_EQ(listing().size(), fs::exists(at("d")) ? 1u : 0u) << faults.failed;
    }
  }
}

}  // namespace
}  // namespace tandem
