#include "tools/app/outputs/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/format.h"
#include "io/plot/plot.h"
#include "io/queue/planar.h"
#include "tools/app/outputs/run_log.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

std::string text(double value, const char* pattern = "%.3g") {
  const double size = std::abs(value);
  return engine::format(size >= 999.5 && size < 1e6 ? "%.0f" : pattern, value);  // not 1.03e+03
}

std::string text(const Json& value, const char* pattern = "%.3g") {
  return value.is_number() ? text(value.get<double>(), pattern) : "not finite";
}

void tell_frames(std::ostream& out, const Json& report) {
  if (const auto& uri = report["run"]["uri"].get_ref<const std::string&>(); !uri.empty())
    out << "source    " << uri << "\n";
  const Json& frames = report["frames"];
  out << "frames    " << frames["received"] << " received = " << frames["trained"] << " trained + "
      << frames["dropped"] << " dropped + " << frames["rejected"] << " rejected";
  const Json &without_target = report["task"]["without_target"],
             &incomplete = report["task"]["minibatch_rejected"];
  if (without_target > 0) {
    out << " (" << without_target << " had no target";
    if (incomplete > 0) out << ", " << incomplete << " shared a minibatch with such a frame";
    out << ")";
  }
  if (frames["in_flight"] > 0) out << " + " << frames["in_flight"] << " in flight";
  const Json& predicted = report["overload"]["predicted_only"];
  if (predicted > 0) out << "; of the dropped " << predicted << " were predicted";
  if (report.contains("replay") && frames.contains("replayed")) {
    out << "; " << frames["replayed"] << " replayed, " << text(report["replay"]["share"])
        << " of all trained samples";
  }
  out << "\n";
}

void tell_time(std::ostream& out, const Json& report) {
  const Json &timing = report["timing_ms"], &latency = report["latency_ms"];
  const bool waits = report["source"]["live"] == true && report["frames"]["dropped"] == 0 &&
                     timing["step_p50"].get<double>() > 1.5 * timing["bottleneck"].get<double>();
  out << "pipeline  " << report["schedule"].get<std::string>() << ", " << report["stages"]
      << " stages cut at " << report["cut"].dump() << " on " << report["devices"].dump()
      << " with threads " << report["threads"].dump() << "\n";
  out << "time      T " << text(timing["T"]) << " ms, T/N " << text(timing["T_over_N"])
      << " ms, slowest stage " << timing["bottleneck_stage"] << " with hand-off "
      << text(timing["bottleneck"]) << " ms, speed-up K " << text(timing["speedup_K"])
      << (waits ? " (the stream sets the pace)" : "") << "\n";
  if (const Json& link = report.value("bottleneck_link", Json()); link.is_object()) {
    out << "links     slowest from rank " << link["from"] << " to " << link["to"] << ": "
        << text(link["ms"]) << " ms for " << link["bytes"] << " bytes ("
        << link["carries"].get<std::string>() << ", stage " << link["stage"] << ")\n";
  }
  out << "latency   capture to prediction p50 " << text(latency["p50"]) << " ms, p99 "
      << text(latency["p99"]) << " ms, max " << text(latency["max"]) << " ms; gradient age "
      << report["gradient_age"].dump() << " frames\n";
}

/// Null: an infinite PSNR.
std::string figure(const Json& value, const std::string& unit) {
  return value.is_null() ? "no error" : text(value) + unit;
}

/// ", mean frame 0.0049, last frame 0.0018": the recent figure of each trivial predictor in `of`.
std::string trivial(const Json& of, const std::string& unit = "") {
  std::string all;
  for (const auto& [key, name] :
       {std::pair{"mean_frame", "mean frame"}, std::pair{"last_frame", "last frame"},
        std::pair{"linear", "linear extrapolation"}}) {
    if (!of.contains(key)) continue;
    all += std::string(", ") + name + " " + figure(of[key]["recent"], unit);
  }
  return all;
}

/// "yes: 1.7 times better than the last frame", the strongest trivial predictor.
std::string verdict_on(const Json& learned) {
  const std::string strongest = learned["strongest"];
  if (strongest.empty()) return "not judged yet: there is nothing to compare with";
  const double times = learned["times"].is_number() ? learned["times"].get<double>() : 0;
  const bool yes = learned["yes"].get<bool>();
  const std::string how = times > 0 ? engine::times_better(times)
                          : yes     ? "no error, unlike"
                                    : "no better than";
  return (yes ? "yes: " : "not yet: ") + how + " the " + strongest;
}

void tell_loss(std::ostream& out, const Json& report) {
  if (report["frames"]["trained"] == 0) {
    out << "learned   nothing: no frame was learned from\n";
    return;
  }
  const Json& loss = report["loss"];
  out << "loss      last 100 " << text(loss["recent"]) << trivial(loss) << "; first "
      << text(loss["first"]) << ", mean " << text(loss["mean"]) << "\n"
      << "learned   " << verdict_on(report["learned"]);
  std::int64_t skipped = 0;
  for (const Json& of_stage : report["guard"]["skipped_updates"])
    skipped = std::max(skipped, of_stage.get<std::int64_t>());
  if (skipped > 0)
    out << "; " << skipped << " updates skipped: not finite, or refused by the guard";
  out << "\n";
}

void tell_scores(std::ostream& out, const Json& report) {
  if (report["frames"]["trained"] == 0) return;
  for (const auto& [key, name] :
       {std::pair{"accuracy", "accuracy"}, std::pair{"iou", "IoU     "}}) {
    if (!report.contains(key)) continue;
    const Json& score = report[key];
    if (const Json back = report.value("accuracy_on_return", Json()); back.is_object()) {
      out << name << "  when a class came back, before learning from it " << text(back["recent"])
          << " (last " << std::min<std::int64_t>(100, back["frames"]) << " such frames)"
          << ", always predicting the majority class " << text(back["majority"]["recent"]) << "\n";
      continue;
    }
    out << name << "  last 100 " << text(score["recent"])
        << ", always predicting the majority class " << text(score["majority"]["recent"]);
    if (score.contains("last_class"))
      out << ", the last class " << text(score["last_class"]["recent"]);
    out << "\n";
  }
  if (!report.contains("psnr_db")) return;
  const Json& psnr = report["psnr_db"];
  if (!report["loss"]["recent"].is_number()) return;  // nan
  out << "PSNR      last 100 " << figure(psnr["recent"], " dB") << trivial(psnr, " dB") << "\n";
}

void tell_answer(std::ostream& out, const Json& report) {
  const Json answer = report.value("answer", Json());
  if (!answer.is_object() || (answer["class"].is_null() && answer["neither"] == false)) return;
  out << "answer    " << (answer["neither"] == true ? "neither" : answer["class"]);
  if (answer["probability"].is_number()) out << ", probability " << text(answer["probability"]);
  out << "; " << text(100 * report["neither"].get<double>())
      << " % of all frames were unlike every class\n";
}

void tell_verdict(std::ostream& out, const Json& real) {
  const std::string reason = real["reason"].get<std::string>();
  if (real["judged"].get<bool>()) {
    out << "real time " << (real["holds"].get<bool>() ? "HOLDS at " : "FAILS at ")
        << text(real["F"], "%.4g") << " frames a second: " << reason << "\n";
  } else {
    out << "real time no verdict: " << reason << "\n";
  }
}

}  // namespace

std::string summarize(const Json& report) {
  std::ostringstream out;
  tell_frames(out, report);
  tell_time(out, report);
  tell_loss(out, report);
  tell_scores(out, report);
  tell_answer(out, report);
  tell_verdict(out, report["realtime"]);
  if (report["capture_error"].is_string())
    out << "steps     ran eagerly, which is slow, since recording failed, a defect of Millrace: "
        << report["capture_error"].get<std::string>() << "\n";
  return out.str();
}

void draw_loss(const RunLog& log, const std::string& path) {
  io::Chart chart{.title = "Loss while learning, frame by frame",
                  .x_label = "frame",
                  .y_label = "mean squared error",
                  .log_y = true};
  const Compared& losses = log.losses();
  auto mean_frame = losses.mean_frame.curve();
  for (auto& [frame, loss] : mean_frame) ++frame;  // there is no mean before the first frame
  chart.series = {{.label = "network", .points = losses.network.curve()},
                  {.label = "mean frame", .points = std::move(mean_frame), .dashed = true}};
  if (losses.last_frame.count() > 0)
    chart.series.push_back(
        {.label = "last frame", .points = losses.last_frame.curve(), .dashed = true});
  io::write_chart(chart, path);
}

void draw_prediction(const RunLog& log, const stages::ImageShape& shape, const std::string& path) {
  const int channels = int(shape.channels), height = int(shape.height), width = int(shape.width);
  const auto [input, target, prediction] = log.pictures();
  const std::size_t elements = log.mean_frame().mean().size();
  const auto error = io::shown_error({prediction, elements}, {target, elements});
  const auto picture = [&](const float* data) {
    return io::from_planar(data, channels, height, width);
  };
  const engine::LossHistory& copies = log.losses().last_frame;
  constexpr char kLoss[] = "loss %.4f";
  io::write_strip(
      "Input and prediction of the last frame",
      {{"input", copies.count() > 0 ? text(copies.recent(), kLoss) + " as the prediction" : "",
        picture(input)},
       {"target", "", picture(target)},
       {"prediction", text(log.network().recent(), kLoss) + " (last 100 frames)",
        picture(prediction)},
       {"mean frame", text(log.baseline().recent(), kLoss) + " (last 100 frames)",
        picture(log.mean_frame().mean().data())},
       {"error x4", "target - prediction", picture(error.data())}},
      path);
}

}  // namespace millrace::app
