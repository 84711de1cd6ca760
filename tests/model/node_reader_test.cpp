// Ranks as threads over one piece of memory: what a call returns, how much each reads, and that no failure leaves others
// waiting.
#include "model/node_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "model/weights.h"
#include "support/tiny_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class NodeReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           concat("lockstep_node_reader_", ::getpid(), "_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // A thread a rank of the mesh, all on one node; the error of each, "" where there was none.
  static std::vector<std::string> on_node(const Mesh& mesh, bool tied, const std::function<void(int rank, NodeReader&)>& work) {
    std::vector<Place> places;
    for (int r = 0; r < mesh.n_ranks(); ++r) places.push_back(mesh.place(r));
    const size_t bytes = NodeReader::bytes_for(places, mesh.pp, tied);
    std::shared_ptr<std::byte> memory;
    if (bytes > 0)
      memory = {static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), [](std::byte* p) { std::free(p); }};
    std::fill_n(memory.get(), bytes, std::byte{});
    std::vector<std::string> errors(places.size());
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < mesh.n_ranks(); ++r)
        threads.emplace_back([&, r] {
          NodeReader reader(places, r, mesh.pp, tied, memory);
          try {
            work(r, reader);
          } catch (const Error& e) {
            reader.fail(e.code, e.what());
            errors[r] = concat(static_cast<int>(e.code), " ", e.what());
          }
        });
    }
    return errors;
  }

  fs::path dir_;
};

// 3 replicas read 1,000,000 bytes: each a third, and each gets all.
TEST_F(NodeReaderTest, ReplicasShareARead) {
  std::string text(1'000'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 256);
  std::ofstream(dir_ / "file") << text;
  const File file(dir_ / "file");
  std::vector<uint64_t> n_read(3);
  const auto errors = on_node({.dp = 3}, false, [&](int r, NodeReader& reader) {
    const FetchBytes fetch = reader.fetch_of("x");
    EXPECT_EQ(std::memcmp(fetch(file, 0, text.size()), text.data(), text.size()), 0);
    for (size_t at = 0; at < 100; ++at)  // small ones, in both buffers: by the first rank
      EXPECT_EQ(std::memcmp(fetch(file, at * 1000, 999), text.data() + at * 1000, 999), 0) << at;
    n_read[r] = reader.bytes_read();
  });
  EXPECT_THAT(errors, ::testing::Each(""));
  EXPECT_THAT(n_read, ::testing::ElementsAre(333'334 + 99'900, 333'334, 333'332));
}

// A whole model over each layout of one node: of every byte one read, but for the vectors that each tensor rank has.
TEST_F(NodeReaderTest, ALayoutReadsAModelOnce) {
  for (const bool tied : {false, true}) {
    const fs::path model = dir_ / (tied ? "tied" : "untied");
    fs::create_directories(model);
    write_tiny_model({.n_layers = 4, .hidden = 128, .n_heads = 8, .n_kv_heads = 4, .ffn = 512, .tied = tied}, model);
    const auto file_bytes = static_cast<double>(fs::file_size(model / "model.safetensors"));
    for (const Mesh mesh :
         {Mesh{.dp = 1, .pp = 1, .tp = 1}, Mesh{.dp = 1, .pp = 1, .tp = 2}, Mesh{.dp = 2, .pp = 1, .tp = 1},
          Mesh{.dp = 2, .pp = 1, .tp = 2}, Mesh{.dp = 1, .pp = 2, .tp = 1}, Mesh{.dp = 2, .pp = 2, .tp = 2}}) {
      std::vector<uint64_t> n_read(mesh.n_ranks());
      const auto errors = on_node(mesh, tied, [&](int r, NodeReader& reader) {
        const auto checkpoint = Checkpoint::open(model);
        const auto ops = make_cpu_ops({.n_threads = 1});
        const Shard shard = make_shard(checkpoint->config(), mesh, mesh.place(r), checkpoint->config().vocab);
        load_weights(*checkpoint, shard, DType::bf16, 64, *ops, reader);
        n_read[r] = reader.bytes_read();
      });
      EXPECT_THAT(errors, ::testing::Each(""));
      const auto sum = static_cast<double>(std::accumulate(n_read.begin(), n_read.end(), uint64_t{0}));
      EXPECT_GT(sum, 0.97 * file_bytes) << mesh.dp << mesh.pp << mesh.tp << tied;  // the rest is the header
      EXPECT_LT(sum, 1.00 * file_bytes) << mesh.dp << mesh.pp << mesh.tp << tied;
    }
  }
}

// One rank fails in its own work, in the middle of the others' calls: all leave, with its words.
TEST_F(NodeReaderTest, AFailureEndsAll) {
  std::ofstream(dir_ / "file") << std::string(1000, 'x');
  const File file(dir_ / "file");
  const auto errors = on_node({.dp = 2, .pp = 1, .tp = 2}, false, [&](int r, NodeReader& reader) {
    for (int i = 0; i < 10; ++i) {
      if (r == 3 && i == 5) fail(ExitCode::unreadable, "tensor 'y' is damaged");
      reader.fetch_of(i % 2 ? "x" : "model.embed_tokens.weight")(file, 0, 1000);
    }
  });
  EXPECT_EQ(errors[1], "3 tensor 'y' is damaged");  // the twin of 3
  EXPECT_EQ(errors[3], "3 tensor 'y' is damaged");
  EXPECT_EQ(errors[0], "3 tensor 'y' is damaged");  // through the embedding
  EXPECT_EQ(errors[2], "3 tensor 'y' is damaged");
}

TEST_F(NodeReaderTest, AFailingFileIsNamedWithTheTensor) {
  std::ofstream(dir_ / "file") << std::string(200'000, 'x');
  const File file(dir_ / "file");
  fs::resize_file(dir_ / "file", 150'000);
  const auto errors =
      on_node({.dp = 2}, false, [&](int, NodeReader& reader) { reader.fetch_of("some.weight")(file, 0, 200'000); });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("3 tensor 'some.weight': " + file.path() + ": ends at 150000"));
}

TEST_F(NodeReaderTest, OnlyThoseWithTheSameNeedsShare) {
  const auto places = [](const Mesh& mesh) {
    std::vector<Place> all;
    for (int r = 0; r < mesh.n_ranks(); ++r) all.push_back(mesh.place(r));
    return all;
  };
  const auto n_groups = [&](const Mesh& mesh, bool tied) {
    return NodeReader::bytes_for(places(mesh), mesh.pp, tied) / (2 * NodeReader::kBufferBytes);
  };
  EXPECT_EQ(n_groups({.dp = 1, .pp = 1, .tp = 1}, true), 0u);
  EXPECT_EQ(n_groups({.dp = 1, .pp = 2, .tp = 1}, false), 0u);
  EXPECT_EQ(n_groups({.dp = 1, .pp = 2, .tp = 1}, true), 1u);   // the embedding, by both stages
  EXPECT_EQ(n_groups({.dp = 1, .pp = 1, .tp = 4}, false), 1u);  // the embedding
  EXPECT_EQ(n_groups({.dp = 8, .pp = 1, .tp = 1}, false), 2u);
  EXPECT_EQ(n_groups({.dp = 2, .pp = 1, .tp = 4}, false), 5u);
}

}  // namespace
}  // namespace lockstep
