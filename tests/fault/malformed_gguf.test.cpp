// Every case of gguf.md 7 as a file: a model that opens, with one thing broken.  Each is refused by the name
// of the file and of what is wrong, before memory is asked for that the file could not fill.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "exec/cpu/cpu_backend.h"
#include "models/runner.h"
#include "tests/fault/largest_allocation.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

constexpr uint64_t k2to63 = uint64_t{1} << 63;

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
std::string raw_string(const std::string& text) { return raw(uint64_t{text.size()}) + text; }

// A file in parts, each of which can be changed before it is written.
struct Sketch {
  struct Key {
    std::string name;
    uint32_t type;
    std::string value;
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    std::string data;
    std::optional<uint64_t> offset;  // absent: where the data are
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> n_tensors, n_keys;  // as stated, absent: as they are
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
  std::optional<size_t> cut;  // bytes of the file that are written

  explicit Sketch(const GgufFile& file) {
    for (const GgufEntry& e : file.entries()) {
      std::string value(reinterpret_cast<const char*>(e.value.bytes.data()), e.value.bytes.size());
      auto type = static_cast<uint32_t>(e.value.type);
      if (e.value.is_array) {
        value = raw(type) + raw(e.value.count) + value;
        type = static_cast<uint32_t>(GgufType::Array);
      }
      keys.push_back({std::string(e.key), type, value});
    }
    for (const GgufTensor& t : file.tensors()) {
      const std::vector<uint64_t> dims(t.ne.begin(), t.ne.begin() + t.n_dims);
      const std::string data(reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.bytes));
      tensors.push_back({t.name, dims, static_cast<uint32_t>(t.type), data, {}});
    }
  }

  Key& key(const std::string& name) {
    for (Key& k : keys) {
      if (k.name == name) return k;
    }
    return keys.emplace_back(Key{name, 4, raw(uint32_t{0})});
  }
  void u32(const std::string& name, uint32_t value) {
    key("qwen3moe." + name).type = 4;
    key("qwen3moe." + name).value = raw(value);
  }
  void f32(const std::string& name, float value) {
    key("qwen3moe." + name).type = 6;
    key("qwen3moe." + name).value = raw(value);
  }
  Tensor& tensor(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::out_of_range(name);
  }

  // Header, keys and tensor infos.
  std::string head() const {
    std::string out =
        magic + raw(version) + raw(n_tensors.value_or(tensors.size())) + raw(n_keys.value_or(keys.size()));
    for (const Key& k : keys) out += raw_string(k.name) + raw(k.type) + k.value;
    uint64_t offset = 0;
    for (const Tensor& t : tensors) {
      out += raw_string(t.name) + raw(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t d : t.dims) out += raw(d);
      out += raw(t.type) + raw(t.offset.value_or(offset));
      offset += (t.data.size() + 31) / 32 * 32;
    }
    return out;
  }
  std::string bytes() const {
    std::string out = head();
    const auto pad = [&] { out.resize((out.size() + 31) / 32 * 32); };
    pad();
    for (const Tensor& t : tensors) {
      out += t.data;
      pad();
    }
    if (cut) out.resize(*cut);
    return out;
  }
};

struct Case {
  int row;                // of the table in gguf.md 7
  const char* condition;  // of those its row names
  const char* part;       // of the message
  std::function<void(Sketch&)> break_it;
  Code code = Code::BadData;
};

// What each row of the table names; a row without conditions of its own has "".
const std::vector<std::pair<int, std::vector<const char*>>> kList = {
    {1, {"shorter than 24 bytes", "bad magic", "bad version", "big-endian"}},
    {2, {"tensor_count absurd", "kv_count absurd"}},
    {3, {"string longer than the file", "string over 1 GiB"}},
    {4, {"array longer than the file", "array of strings longer than the file", "array over 2^30"}},
    {5, {"value type", "element type", "array of array"}},
    {6, {"empty key", "duplicate key"}},
    {7, {"key over 65535 bytes", "non-ASCII key"}},
    {8, {"alignment not u32", "alignment zero", "alignment no power of two", "alignment above the cap"}},
    {9, {"name of 64 bytes", "name with NUL", "duplicate name", "empty name"}},
    {10, {""}},
    {11, {""}},
    {12, {"elements overflow", "product wraps to 0"}},
    {13, {""}},
    {14, {"removed type", "unknown type", "type of a fork"}},
    {15, {""}},
    {16, {""}},
    {17, {""}},
    {18, {"data start beyond the file", "offset + size overflow", "tensor beyond the file"}},
    {19, {"overlap", "wrong order"}},
    {20, {"in the header", "in the keys", "in the tensor infos", "in the data"}},
    {21,
     {"another dimension", "swapped dimensions", "a dimension too many", "missing tensor", "surplus tensor"}},
    {22,
     {"head_count 0", "head_count_kv 0", "head_count_kv does not divide", "block_count 0",
      "block_count over 512", "expert_used over expert_count", "expert_count over 512", "odd rope dims",
      "rope dims over head dim", "epsilon not finite", "frequency base not finite",
      "scaling factor not finite", "vocab_size", "vocabulary", "no width left for a head"}},
    {23, {""}},
};

constexpr char kNorm[] = "blk.0.attn_norm.weight";  // {32} F32
constexpr char kQ[] = "blk.0.attn_q.weight";        // {32, 96} Q8_0

std::vector<Case> container_cases() {
  return {
      {1, "shorter than 24 bytes", "the file has 23 bytes", [](Sketch& s) { s.cut = 23; }},
      {1, "bad magic", "starts with 'GGML'", [](Sketch& s) { s.magic = "GGML"; }},
      {1, "bad version", "GGUF version 1, wanted 2 or 3", [](Sketch& s) { s.version = 1; }},
      {1, "bad version", "GGUF version 4, wanted 2 or 3", [](Sketch& s) { s.version = 4; }},
      {1, "big-endian", "big-endian", [](Sketch& s) { s.version = 0x03000000; }, Code::Unsupported},
      {2, "tensor_count absurd", "9223372036854775807 tensors announced",
       [](Sketch& s) { s.n_tensors = k2to63 - 1; }},
      {2, "kv_count absurd", "9223372036854775807 keys announced", [](Sketch& s) { s.n_keys = k2to63 - 1; }},
      {3, "string longer than the file", "key 'k': the file ends too early: 1073741824 bytes",
       [](Sketch& s) {
         s.keys.push_back({"k", 8, raw(uint64_t{1} << 30)});
       }},
      {3, "string over 1 GiB", "1073741825 bytes, more than the 1073741824",
       [](Sketch& s) {
         s.keys.push_back({"k", 8, raw((uint64_t{1} << 30) + 1)});
       }},
      {4, "array longer than the file", "key 'k': an array of 1073741824 elements",
       [](Sketch& s) {
         s.keys.push_back({"k", 9, raw(uint32_t{4}) + raw(uint64_t{1} << 30)});
       }},
      {4, "array of strings longer than the file", "key 'k': an array of 100000000 elements",
       [](Sketch& s) {
         s.keys.push_back({"k", 9, raw(uint32_t{8}) + raw(uint64_t{100000000})});
       }},
      {4, "array over 2^30", "1073741824 is the limit",
       [](Sketch& s) {
         s.keys.push_back({"k", 9, raw(uint32_t{0}) + raw((uint64_t{1} << 30) + 1)});
       }},
      {5, "value type", "key 'k': value type 13",
       [](Sketch& s) {
         s.keys.push_back({"k", 13, raw(uint64_t{0})});
       }},
      {5, "element type", "key 'k': element type 13",
       [](Sketch& s) {
         s.keys.push_back({"k", 9, raw(uint32_t{13}) + raw(uint64_t{0})});
       }},
      {5, "array of array", "key 'k': an array of arrays",
       [](Sketch& s) {
         s.keys.push_back({"k", 9, raw(uint32_t{9}) + raw(uint64_t{0})});
       }},
      {6, "empty key", "the key is empty", [](Sketch& s) { s.key("general.name").name = ""; }},
      {6, "duplicate key", "key 'general.architecture' appears twice",
       [](Sketch& s) { s.keys.push_back(s.key("general.architecture")); }},
      {7, "key over 65535 bytes", "the key has 65536 bytes",
       [](Sketch& s) { s.key("general.name").name = std::string(65536, 'k'); }},
      {7, "non-ASCII key", "not printable ASCII",
       [](Sketch& s) { s.key("general.name").name = "n\xc3\xa4me"; }},
      {8, "alignment not u32", "'general.alignment': is u64, wanted u32",
       [](Sketch& s) {
         s.keys.push_back({"general.alignment", 10, raw(uint64_t{32})});
       }},
      {8, "alignment zero", "'general.alignment': is 0", [](Sketch& s) { s.key("general.alignment"); }},
      {8, "alignment no power of two", "is 24, wanted a power of two",
       [](Sketch& s) { s.key("general.alignment").value = raw(uint32_t{24}); }},
      {8, "alignment above the cap", "is 2147483648, wanted a power of two",
       [](Sketch& s) { s.key("general.alignment").value = raw(uint32_t{1} << 31); }},
      {9, "name of 64 bytes", "the name has 64 bytes",
       [](Sketch& s) { s.tensors[1].name = std::string(64, 'n'); }},
      {9, "name with NUL", "has a NUL byte", [](Sketch& s) { s.tensors[1].name = std::string("n\0m", 3); }},
      {9, "duplicate name", "tensor 'token_embd.weight' appears twice",
       [](Sketch& s) { s.tensors[1].name = s.tensors[0].name; }},
      {9, "empty name", "tensor 1: the name is empty", [](Sketch& s) { s.tensors[1].name = ""; }},
      {10, "", "has 5 dimensions",
       [](Sketch& s) {
         s.tensor(kQ).dims = {32, 96, 1, 1, 1};
       }},
      {11, "", "dimension 1 is 9223372036854775808",
       [](Sketch& s) {
         s.tensor(kQ).dims = {32, k2to63};
       }},
      {12, "elements overflow", "the number of elements overflows",
       [](Sketch& s) {
         s.tensor(kQ).dims = {uint64_t{1} << 32, uint64_t{1} << 31};
       }},
      {12, "product wraps to 0", "the number of elements overflows",
       [](Sketch& s) {
         s.tensor(kQ).dims = {uint64_t{1} << 40, uint64_t{1} << 40};
       }},
      {13, "", "has no elements",
       [](Sketch& s) {
         s.tensor(kQ).dims = {32, 0};
       }},
      {14, "removed type", "unsupported tensor type 4 ", [](Sketch& s) { s.tensor(kQ).type = 4; }},
      {14, "removed type", "unsupported tensor type 36 ", [](Sketch& s) { s.tensor(kQ).type = 36; }},
      {14, "unknown type", "unsupported tensor type 43 ", [](Sketch& s) { s.tensor(kQ).type = 43; }},
      {14, "type of a fork", "unsupported tensor type 137 ", [](Sketch& s) { s.tensor(kQ).type = 137; }},
      {15, "", "rows of 48 elements are no multiple of the 32",
       [](Sketch& s) {
         s.tensor(kQ).dims = {48, 64};
       }},
      {16, "", "the number of bytes overflows", [](Sketch& s) { s.tensor(kQ).dims = {k2to63 - 32}; }},
      {17, "", "is no multiple of the alignment 32", [](Sketch& s) { s.tensor(kQ).offset = 16; }},
      {18, "data start beyond the file", "before the tensor data",
       [](Sketch& s) {
         while (s.head().size() % 32 == 0) s.key("general.name").name += "x";
         s.cut = s.head().size();
       }},
      {18, "offset + size overflow", "go beyond the",
       [](Sketch& s) { s.tensors.back().offset = ~uint64_t{31}; }},
      {18, "tensor beyond the file", "go beyond the", [](Sketch& s) { s.tensors.back().offset = 1 << 20; }},
      {19, "overlap", "lies before the end of the previous tensor",
       [](Sketch& s) { s.tensors[1].offset = 32; }},
      {19, "wrong order", "lies before the end of the previous tensor",
       [](Sketch& s) { s.tensors[0].offset = uint64_t{32} * 100; }},
      {20, "in the header", "the file has 20 bytes", [](Sketch& s) { s.cut = 20; }},
      {20, "in the keys", "the file ends too early", [](Sketch& s) { s.cut = 3300; }},
      {20, "in the tensor infos", "the file ends too early", [](Sketch& s) { s.cut = s.head().size() - 1; }},
      {20, "in the data", "is the file complete?", [](Sketch& s) { s.cut = s.bytes().size() - 40; }},
  };
}

std::vector<Case> model_cases() {
  return {
      {21, "another dimension", "blk.0.attn_norm.weight has shape",
       [](Sketch& s) { s.tensor(kNorm).dims = {16}; }},
      {21, "swapped dimensions", "blk.0.attn_q.weight has shape",
       [](Sketch& s) {
         s.tensor(kQ).dims = {96, 32};
       }},
      {21, "a dimension too many", "blk.0.attn_q.weight has shape",
       [](Sketch& s) {
         s.tensor(kQ).dims = {32, 48, 2};
       }},
      {21, "missing tensor", "blk.0.attn_q.weight is missing",
       [](Sketch& s) { s.tensor(kQ).name = "blk.0.other"; }},
      {21, "surplus tensor", "tensor extra is not part of the architecture",
       [](Sketch& s) {
         s.tensors.push_back({"extra", {1}, 0, raw(1.f), {}});
       },
       Code::Unsupported},
      {22, "head_count 0", "head_count is 0", [](Sketch& s) { s.u32("attention.head_count", 0); }},
      {22, "head_count_kv 0", "head_count_kv is 0", [](Sketch& s) { s.u32("attention.head_count_kv", 0); }},
      {22, "head_count_kv does not divide", "cannot share 2 key/value heads",
       [](Sketch& s) {
         s.u32("attention.head_count", 3);
         s.u32("attention.head_count_kv", 2);
       }},
      {22, "block_count 0", "block_count is 0", [](Sketch& s) { s.u32("block_count", 0); }},
      {22, "block_count over 512", "block_count is 513", [](Sketch& s) { s.u32("block_count", 513); }},
      {22, "expert_used over expert_count", "expert_used_count is 4",
       [](Sketch& s) { s.u32("expert_used_count", 4); }},
      {22, "expert_count over 512", "expert_count is 513", [](Sketch& s) { s.u32("expert_count", 513); }},
      {22, "odd rope dims", "rope.dimension_count is 7", [](Sketch& s) { s.u32("rope.dimension_count", 7); }},
      {22, "rope dims over head dim", "rope.dimension_count is 34",
       [](Sketch& s) { s.u32("rope.dimension_count", 34); }},
      {22, "epsilon not finite", "layer_norm_rms_epsilon is nan",
       [](Sketch& s) { s.f32("attention.layer_norm_rms_epsilon", std::numeric_limits<float>::quiet_NaN()); }},
      {22, "frequency base not finite", "freq_base is inf",
       [](Sketch& s) { s.f32("rope.freq_base", std::numeric_limits<float>::infinity()); }},
      {22, "scaling factor not finite", "rope.scaling.factor is nan",
       [](Sketch& s) { s.f32("rope.scaling.factor", std::numeric_limits<float>::quiet_NaN()); }},
      {22, "vocab_size", "vocab_size is 5, token_embd.weight has", [](Sketch& s) { s.u32("vocab_size", 5); }},
      {22, "vocabulary", "the vocabulary has 1 tokens",
       [](Sketch& s) {
         s.key("tokenizer.ggml.tokens").value = raw(uint32_t{8}) + raw(uint64_t{1}) + raw_string("a");
       }},
      {22, "no width left for a head", "64 heads share a width of 32",
       [](Sketch& s) {
         std::erase_if(s.keys, [](const Sketch::Key& k) {
           return k.name.ends_with("key_length") || k.name.ends_with("value_length");
         });
         s.u32("attention.head_count", 64);
         s.u32("attention.head_count_kv", 64);
       }},
      {23, "", "head_count' is u32[2], wanted an integer",
       [](Sketch& s) {
         s.key("qwen3moe.attention.head_count").type = 9;
         s.key("qwen3moe.attention.head_count").value =
             raw(uint32_t{4}) + raw(uint64_t{2}) + raw(uint32_t{3}) + raw(uint32_t{3});
       }},
  };
}

class MalformedGguf : public testing::Test {
 protected:
  static SynthSettings sizes() {
    SynthSettings s;
    s.type = DType::Q8_0;
    s.n_layer = 1;
    s.n_embd = 32;
    s.n_head = 3;
    s.n_head_kv = 1;
    s.d_head = 32;
    s.n_expert = 3;
    s.n_ff_exp = 32;
    s.n_vocab = synth_min_vocab();
    return s;
  }
  MalformedGguf() : model_(tiny_model(dir_, "qwen3moe", sizes())) {}

  std::string write(const Sketch& sketch) const {
    const std::string path = dir_.file("m.gguf");
    write_file_atomic(path, sketch.bytes());
    return path;
  }

  TempDir dir_;
  Model model_;
};

TEST_F(MalformedGguf, WhatIsNotBrokenOpens) {
  const Sketch sketch(model_.file());
  const Model again = Model::open(write(sketch));
  EXPECT_EQ(again.file().tensors().size(), model_.file().tensors().size());
}

TEST_F(MalformedGguf, EveryCaseIsRefused) {
  std::vector<Case> cases = container_cases();
  for (Case& c : model_cases()) cases.push_back(std::move(c));
  std::set<std::pair<int, std::string>> listed, seen;
  for (const auto& [row, conditions] : kList) {
    for (const char* c : conditions) listed.emplace(row, c);
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("row {}: {}: wanted '{}'", c.row, c.condition, c.part));
    seen.emplace(c.row, c.condition);
    Sketch sketch(model_.file());
    c.break_it(sketch);
    const std::string path = write(sketch);
    const size_t file_bytes = sketch.bytes().size();
    reset_largest_allocation();
    try {
      Model::open(path);
      ADD_FAILURE() << "opened";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.code(), c.code) << text;
      EXPECT_TRUE(text.starts_with(path + ": ")) << text;
      EXPECT_NE(text.find(c.part), std::string::npos) << text;
    }
    // A reader's tables are a few times as large as what they are made from; its smallest are of any size.
    EXPECT_LE(largest_allocation_bytes(), 4 * file_bytes + (size_t{64} << 10));
  }
  EXPECT_EQ(seen, listed);
}

// Row 24 is not looked for when a model is opened: that would read every weight.  It shows where it matters.
TEST_F(MalformedGguf, ScalesThatAreNotFiniteEndInAnErrorWhenTheyAreUsed) {
  ThreadPool pool(1);
  CpuBackend cpu(pool, best_isa());
  for (const uint16_t scale : {uint16_t{0x7e00}, uint16_t{0x7c00}, uint16_t{0xfc00}}) {
    Sketch sketch(model_.file());
    std::string& data = sketch.tensor(kQ).data;
    for (size_t at = 0; at < data.size(); at += 34) std::memcpy(data.data() + at, &scale, 2);
    const Model model = Model::open(write(sketch));
    Session session(model, cpu, {}, 16, 16, Precision::F32);
    session.allocate();
    try {
      session.append(std::vector<int32_t>{1, 2, 3});
      ADD_FAILURE() << scale;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::NonFinite) << e.what();
    }
  }
}

}  // namespace
}  // namespace tandem
