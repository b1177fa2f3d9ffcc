#include "engine/schedule/schedule_csv.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/schedule/registry.h"
#include "engine/schedule/verifier.h"
#include "tests/complaint.h"

namespace millrace::engine {
namespace {

std::string complaint_about(const std::string& text) {
  return complaint<std::invalid_argument>([&] { parse_schedule_csv(text); });
}

TEST(ScheduleCsv, ReadsWhatPyTorchWrites) {
  const auto actions = [](const char* text, std::size_t worker) {
    const Schedule s = parse_schedule_csv(text);
    EXPECT_FALSE(verify(s)) << text;
    std::string all;
    for (const Action& a : s.workers[worker].period) all += action_text(a, true) + " ";
    return all;
  };
  EXPECT_EQ(actions("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\n"
                    "1RECV_F0,1F0,1B0,1SEND_B0",
                    0),
            "0F0 0I0 0W0 0U0 ")
      << "the rest is implied";
  EXPECT_EQ(actions("0F0,(0F1;0B0)OVERLAP_F_B,0B1", 0), "0F0 0F1 0B0 0B1 0U1 ");
  EXPECT_EQ(actions("0F0,,,0F1,0B0,,0B1\n,1F1,1B0,1F2,1B1", 1), "1F0 1B0 1F1 1B1 1U1 ")
      << "of its 1F1B's last rank";
}

TEST(ScheduleCsv, SaysWhereItCannotRead) {
  EXPECT_EQ(complaint_about("0F0,0B0\n1F0,1X0"),
            "2:5: \"1X0\" is no action, such as 2F0 (stage 2 forwards sample 0), 2B0, 2I0, 2W0");
  EXPECT_EQ(complaint_about("0F0,0B"), "1:5: \"0B\" names no sample, as in 2F0");
  EXPECT_NE(complaint_about("0F0^1,0B0").find("1:1: \"0F0^1\" is no action"), std::string::npos);
  EXPECT_NE(complaint_about("0F0,0B0,0U0").find("1:9: \"0U0\""), std::string::npos);
  EXPECT_EQ(complaint_about("0F0,0B0\n\n1F0,1B0"), "2:1: a worker without actions");
  EXPECT_NE(complaint_about(""), "");
  EXPECT_NE(complaint_about("0F99999999999999999999"), "");
  EXPECT_THROW(make_schedule("no/such.csv", {}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
