#include "tools/cli/compare/compare.h"

#include <gtest/gtest.h>

#include "tests/io/test_folder.h"

namespace millrace::cli {
namespace {

using Compare = io::FolderTest;

using nlohmann::ordered_json;

ordered_json report(double loss, const std::string& schedule, double rate) {
  return {{"schedule", schedule},
          {"stages", 2},
          {"config", {{"optimizer", {{"kind", "adam"}, {"lr", rate}}}, {"seed", 1}}},
          {"frames", {{"received", 100}, {"trained", 90}}},
          {"timing_ms", {{"T", 20.0}}},
          {"realtime", {{"F", 25.0}, {"holds", true}}},
          {"loss", {{"recent", loss}}},
          {"learned", {{"times", 0.01 / loss}}}};
}

/// The fields of the line that begins with `label`, without it.
std::vector<std::string> row(const std::string& text, const std::string& label) {
  std::vector<std::string> fields;
  const std::size_t begin = ("\n" + text).find("\n" + label + "  ");
  if (begin == text.npos) return fields;
  std::string line = text.substr(begin, text.find('\n', begin) - begin).substr(label.size());
  for (std::size_t at = 0; (at = line.find_first_not_of(' ', at)) != line.npos;) {
    const std::size_t end = std::min(line.find("  ", at), line.size());
    fields.push_back(line.substr(at, end - at));
    at = end;
  }
  return fields;
}

using Fields = std::vector<std::string>;

TEST_F(Compare, ShowsWhatDiffersAndWhatCameOfIt) {
  const std::string text = compare_text(
      {{"a.json", report(0.005, "partime", 0.001)}, {"b.json", report(0.0025, "pb", 0.01)}});
  EXPECT_EQ(row(text, "schedule"), (Fields{"partime", "pb"}));
  EXPECT_EQ(row(text, "stages"), Fields{}) << "the same in both";
  EXPECT_EQ(row(text, "seed"), Fields{});
  EXPECT_EQ(row(text, "optimizer.lr"), (Fields{"0.001", "0.01"}));
  EXPECT_EQ(row(text, "frames trained"), (Fields{"90", "90"}));
  EXPECT_EQ(row(text, "loss, last 100"), (Fields{"0.005", "0.0025 (x 0.5)"}));
  EXPECT_EQ(row(text, "times better than it"), (Fields{"2", "4 (x 2)"}));
  EXPECT_EQ(row(text, "real time holds"), (Fields{"yes", "yes"}));
  EXPECT_EQ(row(text, "accuracy, last 100"), Fields{}) << "no run has it";
}

TEST_F(Compare, AnOlderReportLacksValuesAndNothingElse) {
  const std::string text =
      compare_text({{"a", report(1, "pb", 0.1)},
                    {"b", {{"frames", {{"trained", 3}}}, {"timing_ms", ordered_json::object()}}}});
  EXPECT_EQ(row(text, "T, ms"), (Fields{"20", "-"}));
  EXPECT_EQ(row(text, "schedule"), (Fields{"pb", "-"}));
}

TEST_F(Compare, CurvesLeaveOutWhatIsNoFramesLine) {
  io::put_bytes(folder / "log",
                "{\"frame\": 0, \"loss\": 0.5, \"mean_frame_loss\": 0.25}\n"
                "{\"resumed\": 1}\n{\"frame\": 1, \"loss\": null}\n{\"frame\": 2, \"lo");
  const LossCurves curves = read_curves(folder / "log");
  EXPECT_EQ(curves.network, (std::vector<std::pair<double, double>>{{0, 0.5}}));
  EXPECT_EQ(curves.mean_frame, (std::vector<std::pair<double, double>>{{0, 0.25}}));
  EXPECT_THROW(read_curves(folder / "none"), std::invalid_argument);
}

TEST_F(Compare, LongCurvesAreThinnedByTheirMeans) {
  std::string text;
  for (int n = 0; n < 8000; ++n)
    text += "{\"frame\":" + std::to_string(n) + ",\"loss\":" + std::to_string(n % 2) + "}\n";
  io::put_bytes(folder / "log", text);
  const LossCurves curves = read_curves(folder / "log");
  ASSERT_EQ(curves.network.size(), 4000u);
  for (const auto& [frame, loss] : curves.network) EXPECT_EQ(loss, 0.5);
  const io::Chart chart = compare_chart({{"a", curves}, {"b", curves}});
  EXPECT_EQ(chart.series.size(), 2u);
}

}  // namespace
}  // namespace millrace::cli
