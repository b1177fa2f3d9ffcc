#include "engine/plan_files/profile_json.h"

#include <gtest/gtest.h>

#include "tests/complaint.h"
#include "tests/engine/plan/random_profile.h"

namespace millrace::engine::plan {
namespace {

Profile sample() {
  std::mt19937 random(3);
  Profile profile = random_profile(random, 5);
  profile.source = "a \"test\"";
  profile.device = "cpu";
  profile.frames = 3;
  profile.thread_speedup = {1, 1.75};
  profile.hand_offs = {{"cpu-cpu", {{1000, 0.25}, {2e6, 1.5}}}};
  profile.modules[1].forward.spread = 0.125;
  profile.modules[2].tensor_ways = 4;
  profile.modules[2].tensor_bytes = 17;
  profile.modules[2].tensor_gradient_bytes = 0;
  profile.modules[2].parts = {{2, {1, 2, 0.5, 0.25}}, {4, {0.5, 1, 0.25, 0}}};
  return profile;
}

TEST(ProfileJson, ComesBackToTheBit) {
  EXPECT_EQ(profile_from_json(profile_to_json(sample()), "f"), sample());
}

/// The error for the written text with the first `from` replaced by `to`.
std::string complaint_about(const std::string& from, const std::string& to) {
  std::string text = profile_to_json(sample());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return complaint<ProfileError>([&] { profile_from_json(text, "p.json"); });
}

TEST(ProfileJson, NamesModuleAndFieldOfWhatIsWrong) {
  const char* const cases[][3] = {
      {"\"forward_ms\"", "\"forwards\"", "module 0 (m0): unknown field \"forwards\""},
      {"\"forward_ms\"", "\"update_ms\"", "module 0 (m0): forward_ms is missing"},
      {"\"weight_bytes\":", "\"weight_bytes\":\"x\",\"state_bytes\":",
       "module 0 (m0): weight_bytes is not a number"},
      {"\"weight_bytes\":", "\"weight_bytes\":-1,\"state_bytes\":",
       "module 0 (m0): weight_bytes is negative"},
      {"\"update_ms\":[", "\"update_ms\":[1,", "module 0 (m0): update_ms is not [median, spread]"},
      {"\"tensor_ways\":1", "\"tensor_ways\":0.5", "module 0 (m0): tensor_ways is no count"},
      {"[[2,1.0", "[[1,1.0", "module 2 (m2): tensor_ms is no list of [parts, ms, ms, ms, ms]"},
      {"\"name\":\"m0\"", "\"nome\":\"m0\"", "module 0: name is missing"},
      {"\"millrace_profile\": 1", "\"millrace_profile\": 2",
       "millrace_profile is not 1: no profile, or a later one"},
      {"\"modules\": [", "\"modules\": 7, \"x\": [", "unknown field \"x\""}};
  for (const auto& [from, to, why] : cases)
    EXPECT_EQ(complaint_about(from, to), std::string("p.json: ") + why);
  EXPECT_EQ(complaint_about("{", "").substr(0, 21), "p.json: is no JSON: [");
  EXPECT_EQ(complaint_about("\"update_ms\":", "\"update_ms\":3,\"weight_gradient_ms\":"),
            "");  // a bare number is a median
}

}  // namespace
}  // namespace millrace::engine::plan
