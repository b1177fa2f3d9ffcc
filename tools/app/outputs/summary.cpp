#include "tools/app/outputs/report.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/format.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

std::string text(double value, const char* pattern = "%.3g") {
  return engine::format(pattern, value);
}

std::string text(const Json& value, const char* pattern = "%.3g") {
  return value.is_number() ? text(value.get<double>(), pattern) : "nan";
}

void tell_frames(std::ostream& out, const Json& report) {
  if (const auto& uri = report["run"]["uri"].get_ref<const std::string&>(); !uri.empty())
    out << "source    " << uri << "\n";
  const Json& frames = report["frames"];
  out << "frames    " << frames["received"] << " received = " << frames["trained"] << " trained + "
      << frames["dropped"] << " dropped + " << frames["rejected"] << " rejected";
  const Json& predicted = report["overload"]["predicted_only"];
  if (predicted > 0) out << "; of the dropped " << predicted << " were predicted";
  const Json& untold = report["task"]["without_target"];
  if (untold > 0) out << "; of the rejected " << untold << " were predicted, but had no target";
  if (report.contains("replay")) {
    out << "; " << frames["replayed"] << " replayed, " << text(report["replay"]["share"])
        << " of what was learned from";
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

void tell_loss(std::ostream& out, const Json& report) {
  const Json& loss = report["loss"];
  out << "loss      last 100 " << text(loss["recent"]) << ", mean frame "
      << text(loss["mean_frame"]["recent"]) << "; first " << text(loss["first"]) << ", mean "
      << text(loss["mean"]) << "\n";
  const Json &mine = loss["recent"], &mean_frames = loss["mean_frame"]["recent"];
  if (!mine.is_number() || !mean_frames.is_number() || mine.get<double>() <= 0) return;
  const double ratio = mean_frames.get<double>() / mine.get<double>();
  out << "learned   "
      << (ratio > 1 ? "yes: " + text(ratio) + " times better than"
                    : "not yet: " + text(1 / ratio) + " times worse than")
      << " always predicting the mean "
      << (report.contains("accuracy") ? "of the classes" : "frame") << "\n";
}

void tell_scores(std::ostream& out, const Json& report) {
  for (const auto& [key, name] :
       {std::pair{"accuracy", "accuracy"}, std::pair{"iou", "IoU     "}}) {
    if (!report.contains(key)) continue;
    const Json& score = report[key];
    out << name << "  last 100 " << text(score["recent"]) << ", always telling the majority class "
        << text(score["majority"]["recent"]) << "\n";
  }
  if (!report.contains("psnr_db")) return;
  const Json& psnr = report["psnr_db"];
  out << "PSNR      last 100 " << text(psnr["recent"]) << " dB, mean frame "
      << text(psnr["mean_frame"]["recent"]) << " dB";
  if (psnr.contains("last_frame"))
    out << ", last frame " << text(psnr["last_frame"]["recent"]) << " dB";
  out << "\n";
}

void tell_verdict(std::ostream& out, const Json& real) {
  const std::string reason = real["reason"].get<std::string>();
  if (real["F"].get<double>() > 0) {
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
  tell_verdict(out, report["realtime"]);
  return out.str();
}

}  // namespace millrace::app
