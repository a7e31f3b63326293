#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/file.h"
#include "support/staging.h"

namespace optc {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("optc_support_test_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string path(const std::string &name) const { return (root_ / name).string(); }
  size_t entries() const {
    size_t count = 0;
    for (const auto &entry : fs::directory_iterator(root_)) count += entry.exists();
    return count;
  }
  fs::path root_;
  Diagnostics diagnostics_;
};

TEST_F(Files, WrittenTextIsReadAndMapped) {
  const std::string text("a\0b\n", 4);
  ASSERT_TRUE(write_file(path("x"), text, diagnostics_).ok());
  auto read = read_file(path("x"), diagnostics_);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, text);
  auto mapped = MappedFile::open(path("x"), diagnostics_);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char *>((*mapped)->data()), (*mapped)->size()), text);
  EXPECT_EQ(entries(), 1u) << "a staging file was left";
}

TEST_F(Files, EmptyFileMapsToNothing) {
  ASSERT_TRUE(write_file(path("empty"), "", diagnostics_).ok());
  auto mapped = MappedFile::open(path("empty"), diagnostics_);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->size(), 0u);
  EXPECT_EQ((*mapped)->data(), nullptr);
}

TEST_F(Files, WhatIsNoRegularFileIsRefused) {
  EXPECT_FALSE(MappedFile::open(path("missing"), diagnostics_).ok());
  EXPECT_FALSE(MappedFile::open(root_.string(), diagnostics_).ok());
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(read_file(path("fifo"), diagnostics_).ok());
  ASSERT_EQ(diagnostics_.all().size(), 3u);
  for (const Diagnostic &d : diagnostics_.all()) EXPECT_EQ(d.kind, ErrorKind::kIo);
  EXPECT_NE(diagnostics_.all()[1].message.find("folder"), std::string::npos);
}

TEST_F(Files, StagedDirectoryAppearsWhole) {
  {
    auto staged = StagedDirectory::create(path("bundle"), diagnostics_);
    ASSERT_TRUE(staged.ok());
    ASSERT_TRUE((*staged)->write("src/model.cpp", "int x;", diagnostics_).ok());
    EXPECT_FALSE(fs::exists(path("bundle")));
  }
  EXPECT_EQ(entries(), 0u) << "what was not committed is removed";
  for (int round = 0; round < 2; ++round) {  // the second replaces the first
    auto staged = StagedDirectory::create(path("bundle"), diagnostics_);
    ASSERT_TRUE(staged.ok());
    const std::string manifest = "{\"compiler\": \"optc 0.1.0\", \"round\": " + std::to_string(round) + "}";
    ASSERT_TRUE((*staged)->write("manifest.json", manifest, diagnostics_).ok());
    ASSERT_TRUE((*staged)->commit(diagnostics_).ok());
  }
  EXPECT_NE(read_file(path("bundle/manifest.json"), diagnostics_)->find("\"round\": 1"), std::string::npos);
  EXPECT_EQ(entries(), 1u);
}

// A bundle with a file of the given text.
void stage(const std::string &folder, const std::string &text, bool force, Status &status, Diagnostics &diagnostics) {
  auto staged = StagedDirectory::create(folder, diagnostics);
  ASSERT_TRUE(staged.ok());
  ASSERT_TRUE((*staged)->write("manifest.json", "{\n \"compiler\": \"optc 0.1.0\"\n}\n", diagnostics).ok());
  ASSERT_TRUE((*staged)->write("src/model.cpp", text, diagnostics).ok());
  status = (*staged)->commit(diagnostics, force);
}

TEST_F(Files, StagedDirectoryKeepsFilesOfOthers) {
  Status status;
  stage(path("bundle"), "one", false, status, diagnostics_);
  ASSERT_TRUE(status.ok());
  EXPECT_NE(read_file(path("bundle/manifest.json"), diagnostics_)->find("\"src/model.cpp\": \"" + xxh3_128("one", 3)),
            std::string::npos);
  fs::create_directories(path("bundle/build/deep"));
  ASSERT_TRUE(write_file(path("bundle/build/deep/object"), "o", diagnostics_).ok());
  ASSERT_TRUE(write_file(path("bundle/src/mine.cpp"), "mine", diagnostics_).ok());
  fs::create_symlink("nowhere", path("bundle/link"));
  stage(path("bundle"), "two", false, status, diagnostics_);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(*read_file(path("bundle/src/model.cpp"), diagnostics_), "two");
  EXPECT_EQ(*read_file(path("bundle/src/mine.cpp"), diagnostics_), "mine");
  EXPECT_EQ(*read_file(path("bundle/build/deep/object"), diagnostics_), "o");
  EXPECT_TRUE(fs::is_symlink(path("bundle/link")));
  // What was changed by hand is not lost without force.
  ASSERT_TRUE(write_file(path("bundle/src/model.cpp"), "edited", diagnostics_).ok());
  stage(path("bundle"), "three", false, status, diagnostics_);
  EXPECT_FALSE(status.ok());
  ASSERT_FALSE(diagnostics_.all().empty());
  EXPECT_EQ(diagnostics_.all().back().places, std::vector<std::string>{path("bundle/src/model.cpp")});
  EXPECT_EQ(*read_file(path("bundle/src/model.cpp"), diagnostics_), "edited");
  stage(path("bundle"), "three", true, status, diagnostics_);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(*read_file(path("bundle/src/model.cpp"), diagnostics_), "three");
  EXPECT_EQ(*read_file(path("bundle/src/mine.cpp"), diagnostics_), "mine");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, TheCurrentFolderStaysWhereItIs) {
  const fs::path before = fs::current_path();
  fs::create_directories(path("here"));
  fs::current_path(path("here"));
  Status status;
  stage(".", "one", false, status, diagnostics_);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(*read_file("src/model.cpp", diagnostics_), "one");
  ASSERT_TRUE(write_file("src/mine.cpp", "mine", diagnostics_).ok());
  stage("../here", "two", false, status, diagnostics_);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(*read_file("src/model.cpp", diagnostics_), "two");
  EXPECT_EQ(*read_file("src/mine.cpp", diagnostics_), "mine");
  ASSERT_TRUE(write_file("src/model.cpp", "edited", diagnostics_).ok());
  stage(".", "three", false, status, diagnostics_);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(*read_file("src/model.cpp", diagnostics_), "edited");
  fs::current_path(before);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("here")), fs::directory_iterator()), 2);  // manifest.json, src
}

TEST_F(Files, LinksAreFollowed) {
  Status status;
  fs::create_directories(path("there"));
  fs::create_directory_symlink("there", path("link"));
  stage(path("link"), "one", false, status, diagnostics_);
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(fs::is_symlink(path("link")) && fs::exists(path("there/src/model.cpp")));
  ASSERT_TRUE(write_file(path("file"), "old", diagnostics_).ok());
  fs::create_symlink("file", path("file_link"));
  ASSERT_TRUE(write_file(path("file_link"), "new", diagnostics_).ok());
  EXPECT_TRUE(fs::is_symlink(path("file_link")));
  EXPECT_EQ(*read_file(path("file"), diagnostics_), "new");
}

TEST_F(Files, WhyAFileCannotBeWrittenIsSaid) {
  EXPECT_FALSE(write_file(path("no/such/folder"), "x", diagnostics_).ok());
  EXPECT_NE(diagnostics_.all()[0].message.find("No such file or directory"), std::string::npos);
  // A device is written to, not replaced.
  EXPECT_FALSE(write_file("/dev/full", std::string(100000, 'x'), diagnostics_).ok());
  EXPECT_NE(diagnostics_.all()[1].message.find("No space left on device"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(Files, WhatIsUnfinishedIsRemovedWhenASignalEndsTheProcess) {
  ASSERT_EXIT(
      {
        auto file = StagedFile::create(path("file"), diagnostics_);
        auto folder = StagedDirectory::create(path("bundle"), diagnostics_);
        if (!file.ok() || !folder.ok() || !(*folder)->write("a", "b", diagnostics_).ok() || entries() != 2) _exit(1);
        remove_unfinished();
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Files, StagedDirectoryKeepsForeignFolders) {
  fs::create_directories(path("home"));
  ASSERT_TRUE(write_file(path("home/letter"), "dear", diagnostics_).ok());
  ASSERT_TRUE(write_file(path("home/manifest.json"), "{\"name\": \"a web page\"}", diagnostics_).ok());
  {
    auto staged = StagedDirectory::create(path("home"), diagnostics_);
    ASSERT_TRUE(staged.ok());
    ASSERT_TRUE((*staged)->write("manifest.json", "{}", diagnostics_).ok());
    EXPECT_FALSE((*staged)->commit(diagnostics_).ok());
  }
  EXPECT_TRUE(fs::exists(path("home/letter")));
  EXPECT_EQ(entries(), 1u);
}

TEST(Hash, IsTheCanonicalXxh3) {
  // The value that `xxh128sum` prints for an empty file.
  EXPECT_EQ(xxh3_128("", 0), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(xxh3_128("a", 1), xxh3_128("b", 1));
}

}  // namespace
}  // namespace optc
