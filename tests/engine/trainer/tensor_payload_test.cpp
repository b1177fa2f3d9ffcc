#include "engine/trainer/tensor_payload.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace millrace::engine {
namespace {

const std::vector<std::size_t> kBytes{2 * 3 * 4 * 5 * sizeof(float), 7 * sizeof(float)};

std::vector<at::Tensor> made() {
  return {at::rand({2, 3, 4, 5}), at::rand({7})};
}

/// Acts as a port: copies parts of one side into those of the other.
void send(TensorPayload& from, TensorPayload& to) {
  from.pack();
  std::vector<std::byte> message;
  for (const auto& part : from.parts()) message.insert(message.end(), part.begin(), part.end());
  std::size_t at = 0;
  for (const auto& part : to.parts()) {
    ASSERT_LE(at + part.size(), message.size());
    std::copy_n(message.begin() + std::ptrdiff_t(at), part.size(), part.begin());
    at += part.size();
  }
  ASSERT_EQ(at, message.size());
  to.unpack();
}

void expect_equal(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_TRUE(at::equal(some[i], others[i])) << "tensor " << i;
  }
}

class Payloads : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  const bool from_stay_ = GetParam().first, to_stay_ = GetParam().second;
};

TEST_P(Payloads, BringWhatIsThere) {
  std::vector<at::Tensor> from = made(), to = to_stay_ ? made() : std::vector<at::Tensor>();
  const std::vector<at::Tensor> before = to;
  TensorPayload sends(from, kBytes, from_stay_), receives(to, kBytes, to_stay_);
  for (int time = 0; time < 2; ++time) {
    for (at::Tensor& tensor : from) tensor.add_(1);
    send(sends, receives);
    expect_equal(from, to);
  }
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(to[i].is_same(before[i])) << "recorded work reads the tensor that was there";
}

TEST_P(Payloads, BringNumbersToTheirPlacesInAnotherLayout) {
  std::vector<at::Tensor> from = made(), to = made();
  from[0] = from[0].contiguous(at::MemoryFormat::ChannelsLast);
  TensorPayload sends(from, kBytes, from_stay_), receives(to, kBytes, to_stay_);
  send(sends, receives);
  expect_equal(from, to);
  EXPECT_EQ(to[0].is_contiguous(), to_stay_) << "else as it was sent, since kernels go by that";
}

INSTANTIATE_TEST_SUITE_P(InPlaceAndCopied, Payloads,
                         testing::Values(std::pair(true, true), std::pair(true, false),
                                         std::pair(false, true), std::pair(false, false)));

TEST(Payload, BringsFewerTensorsAndUndefinedOnes) {
  std::vector<at::Tensor> from{at::Tensor()}, to = made();
  TensorPayload sends(from, kBytes, false), receives(to, kBytes, false);
  send(sends, receives);
  ASSERT_EQ(to.size(), 1u);
  EXPECT_FALSE(to[0].defined());
  from.clear();
  send(sends, receives);
  EXPECT_TRUE(to.empty());
}

TEST(Payload, RefusesWhatHasMovedOrDoesNotFit) {
  std::vector<at::Tensor> from = made();
  TensorPayload stays(from, kBytes, true), copies(from, kBytes, false);
  from[1] = from[1].clone();
  EXPECT_THROW(stays.pack(), std::logic_error);
  from[1] = at::rand({6});
  EXPECT_THROW(copies.pack(), std::logic_error);
  from.resize(3);
  EXPECT_THROW(copies.pack(), std::logic_error);
}

}  // namespace
}  // namespace millrace::engine
