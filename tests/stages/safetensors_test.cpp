#include "stages/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstring>

#include "tests/complaint.h"
#include "tests/io/test_folder.h"

namespace millrace::stages {
namespace {

class Safetensors : public io::FolderTest {};

std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data, '\0');
}

/// That tensors come back to the bit, and PyTorch reads them: tests/cli/test_reference.py.
TEST_F(Safetensors, DataBeginAtAMultipleOfEight) {
  const std::string bytes = to_safetensors({{"a", at::ones({1})}});
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0u);
  EXPECT_EQ(to_safetensors({{"a", at::ones({1})}, {"a", at::ones({1})}}), bytes) << "once";
  EXPECT_EQ(bytes.size(), 8 + size + 4);
}

std::string complaint_about(const std::string& bytes) {
  return complaint<WeightsError>([&] { from_safetensors(bytes); });
}

TEST_F(Safetensors, NamesWhatLibTorchCanNotHold) {
  std::string ones = "1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  const auto of = [&](const std::string& name, const std::string& shape) {
    return with_header(
        "{\"" + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[0,4]}})", 4);
  };
  EXPECT_EQ(complaint_about(of("a", ones)), "\"a\" has 65 dimensions, the most are 64");
  EXPECT_EQ(complaint_about(of("a", ones.substr(2))), "");
  EXPECT_EQ(complaint_about(of("a\\u0000b", "1")), "a tensor's name holds a NUL character");
}

TEST_F(Safetensors, RefusesWhatIsNone) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(complaint<WeightsError>([&] { open_regular(folder / "pipe"); }),
            "is not a regular file")
      << "and not waited for";
  EXPECT_THROW(open_regular("/nonexistent"), WeightsError);
  const std::string good = to_safetensors({{"a", at::ones({64})}});
  const char* crafted[] = {
      R"({"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})",
      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
      R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})",
      R"({"a":[]})",
      R"([])",
      R"({"a")",
      ""};
  for (const char* header : crafted)
    EXPECT_THROW(from_safetensors(with_header(header, 8)), WeightsError) << header;
  for (const std::size_t length : {0, 4, 8, 40, int(good.size()) - 1}) {
    EXPECT_THROW(from_safetensors(good.substr(0, length)), WeightsError) << length;
  }
  EXPECT_THROW(from_safetensors(std::string(8, '\xff') + "{}"), WeightsError);
}

}  // namespace
}  // namespace millrace::stages
