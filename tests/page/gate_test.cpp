#include "tools/page/gate.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/complaint.h"

namespace millrace::page {
namespace {

constexpr char kToken[] = "0123456789abcdef";

std::string refusal(std::string_view where, std::string_view token = "") {
  return complaint<std::invalid_argument>([&] { web_options(where, token); });
}

TEST(WebOptions, EveryWayToSayWhere) {
  const auto at = [](std::string_view where, std::string_view token = "") {
    const WebOptions options = web_options(where, token);
    return options.address + " " + std::to_string(options.port);
  };
  for (const auto& [where, found] : {std::pair("", "127.0.0.1 8080"),
                                     {"9000", "127.0.0.1 9000"},
                                     {"127.0.0.2", "127.0.0.2 8080"},
                                     {"localhost:0", "127.0.0.1 0"},
                                     {"[::1]:9000", "::1 9000"},
                                     {"[::1]", "::1 8080"},
                                     {"::1", "::1 8080"}})
    EXPECT_EQ(at(where), found);
  EXPECT_EQ(at("0.0.0.0:80", kToken), "0.0.0.0 80");
  EXPECT_EQ(at("[::]:80", kToken), ":: 80");
}

TEST(WebOptions, WhatIsRefused) {
  for (const char* where : {"0.0.0.0:80", "[::]:80", "192.168.1.5"})
    EXPECT_NE(refusal(where).find("needs a token"), std::string::npos) << where;
  EXPECT_NE(refusal("127.0.0.1:eighty").find("\"eighty\" is not a port"), std::string::npos);
  EXPECT_NE(refusal("127.0.0.1:65536").find("is not a port"), std::string::npos);
  EXPECT_NE(refusal("127.0.0.1:").find("ADDR:PORT"), std::string::npos);
  EXPECT_NE(refusal("", "short").find("at least 16"), std::string::npos);
  EXPECT_NE(refusal("", "0123456789abcdef&x=1").find("at least 16"), std::string::npos);
}

}  // namespace
}  // namespace millrace::page
