#include "engine/simulate/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/format.h"

namespace millrace::engine {
namespace {

constexpr double kRow = 22, kBox = 18, kTop = 8, kTitle = 24, kFoot = 52, kShare = 52;
constexpr double kLetter = 6.2;  ///< width of a letter of 10 px, about
constexpr double kWidth = 960;   ///< of the picture
constexpr int kMostRows = 64;
constexpr std::size_t kMostBoxes = 20'000;  ///< actions

/// Boxes are pale with dark names in either mode; background, lines and text follow it.
constexpr const char* kStyle = R"(<style>
text{font:11px sans-serif;fill:#1f2328}.m{fill:#59636e}.n{font-size:10px;fill:#14181d;text-anchor:middle}
.p{fill:#fff}.r{fill:#f3f5f7}.g{stroke:#d1d9e0}
.F{fill:#8ec5f2}.L{fill:#f2a0b5}.R{fill:#9adbd0}.B{fill:#f7b267}.I{fill:#fbd38a}.W{fill:#cdb4ee}.U{fill:#7fcf8e}.H{fill:#a7b0ba}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9198a1}.n{fill:#14181d}
.p{fill:#0d1117}.r{fill:#171c23}.g{stroke:#3d444d}}
</style>
)";

/// The legend's words by operation; the last one is for hand-offs.
constexpr std::array kMeanings = {
    "forward",         "backward, local loss", "recompute", "backward",
    "backward, input", "backward, weights",    "update",    "hand-off"};
constexpr std::size_t kHandOff = kMeanings.size() - 1;

char letter(std::size_t kind) {
  return kind == kHandOff ? 'H' : op_letter(Op(kind));
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<' || c == '&' || c == '>') {
      safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : "&gt;";
    } else {
      safe += c < 0x20 || c > 0x7e ? '?' : c;  // XML forbids some of these
    }
  }
  return safe;
}

std::string words(double x, double y, const std::string& text, const char* more = "") {
  return format("<text x=\"%.2f\" y=\"%.2f\"%s>%s</text>\n", x, y, more, escaped(text).c_str());
}

std::string box(double x, double y, double width, double height, char kind) {
  return format("<rect class=\"%c\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", kind,
                x, y, width, height);
}

/// 1, 2 or 5 times a power of ten, so that `length` has about eight marks.
double mark_every(double length) {
  const double rough = length / 8, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough * 0.999) return times * power;
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(const Schedule& schedule, const Simulation& simulation, const std::string& title,
          double until_ms)
      : simulation_(simulation),
        title_(title),
        names_(worker_names(schedule)),
        rows_(std::min(int(names_.size()), kMostRows)),
        staged_(int(names_.size()) < schedule.stages),
        top_(kTop + (title.empty() ? 0 : kTitle)),
        until_(simulation.total_ms) {
    if (until_ms > 0) until_ = std::min(until_, until_ms);
    std::size_t widest = 0;
    for (int row = 0; row < rows_; ++row) widest = std::max(widest, names_[row].size());
    left_ = 16 + kLetter * double(widest);
    choose();
  }

  std::string svg() {
    const double height = top_ + rows_ * kRow + kFoot;
    std::string text = format(
                           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.2f %.2f\" "
                           "width=\"%.2f\" height=\"%.2f\">\n",
                           kWidth, height, kWidth, height) +
                       kStyle + box(0, 0, kWidth, height, 'p');
    if (!title_.empty())
      text += words(8, kTop + 12, title_, " style=\"font-size:13px;font-weight:bold\"");
    return text + frame() + boxes_ + legend(height) + "</svg>\n";
  }

 private:
  /// Draws the earliest actions of the first workers, and sets until_.
  void choose() {
    std::vector<const SimulatedAction*> events;
    for (const SimulatedAction& event : simulation_.events) {
      if (event.worker >= rows_) continue;
      if (event.start_ms > until_) break;
      if (events.size() == kMostBoxes) {
        until_ = event.start_ms;
        break;
      }
      events.push_back(&event);
    }
    for (const SimulatedAction* event : events) draw(*event);
  }

  double x(double ms) const {
    return left_ + (until_ > 0 ? std::min(ms, until_) / until_ : 0.0) * (right_ - left_);
  }

  void draw(const SimulatedAction& event) {
    const double y = top_ + event.worker * kRow + (kRow - kBox) / 2;
    const double begin = event.compute_start_ms(), end = begin + event.compute_ms;
    const auto kind = std::size_t(event.action.op);
    for (const auto& [from, to] : {std::pair{event.start_ms, begin}, {end, event.end_ms()}}) {
      if (to <= from) continue;
      seen_[kHandOff] = true;
      boxes_ += box(x(from), y + kBox / 4, x(to) - x(from), kBox / 2, 'H');
    }
    seen_[kind] = true;
    const double width = x(end) - x(begin);
    boxes_ += box(x(begin), y, width > 3 ? width - 0.7 : std::max(width, 0.6), kBox, letter(kind));
    Action action = event.action;
    action.version = -1;
    for (const std::string& name : {action_text(action, staged_), std::to_string(action.sample)}) {
      if (kLetter * double(name.size()) > width - 2) continue;
      boxes_ += words(x(begin) + width / 2, y + 13, name, " class=\"n\"");
      break;
    }
  }

  std::string frame() const {
    std::string text;
    const double bottom = top_ + rows_ * kRow;
    for (int row = 0; row < rows_; ++row) {
      const double y = top_ + row * kRow;
      const std::string share = format("%.3g %%", 100 * simulation_.compute_share(row));
      text += box(left_, y + 1, right_ - left_, kRow - 2, 'r') + words(8, y + 15, names_[row]) +
              words(right_ + 6, y + 15, share, " class=\"m\"");
    }
    const double every = until_ > 0 ? mark_every(until_) : 0;
    for (int i = 0; every > 0 && i * every <= until_ * 1.0001; ++i) {
      const double at = x(i * every);
      const std::string label = format("%.6g", i * every);
      text += format("<line class=\"g\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%.2f\" y2=\"%.2f\"/>\n", at,
                     at, top_, bottom + 4) +
              words(at, bottom + 16, label, " class=\"m\" text-anchor=\"middle\"");
    }
    return text + words(right_ + 6, bottom + 16, "ms", " class=\"m\"");
  }

  std::string legend(double height) const {
    std::string text;
    double at = left_;
    for (std::size_t kind = 0; kind < kMeanings.size(); ++kind) {
      if (!seen_[kind]) continue;
      text +=
          box(at, height - 22, 12, 12, letter(kind)) + words(at + 17, height - 12, kMeanings[kind]);
      at += 17 + kLetter * double(std::string(kMeanings[kind]).size()) + 18;
    }
    std::string rest;
    if (rows_ < int(names_.size())) rest = format("first %d of %zu workers", rows_, names_.size());
    if (until_ < simulation_.total_ms)
      rest +=
          format("%sfirst %.6g of %.6g ms", rest.empty() ? "" : ", ", until_, simulation_.total_ms);
    return rest.empty() ? text : text + words(at, height - 12, rest, " class=\"m\"");
  }

  const Simulation& simulation_;
  const std::string& title_;
  std::vector<std::string> names_;
  int rows_;
  bool staged_;  ///< a worker has several stages
  double top_, left_ = 0, right_ = kWidth - kShare;
  double until_;  ///< ms
  std::array<bool, kMeanings.size()> seen_{};
  std::string boxes_;
};

}  // namespace

double Staircase::bubble() const {
  std::size_t busy = 0, all = 0;
  for (const auto& row : rows) {
    all += row.size();
    for (const auto& cell : row) busy += cell.has_value();
  }
  return all > 0 ? 1.0 - double(busy) / double(all) : 0.0;
}

Staircase draw_staircase(const Schedule& schedule, std::int64_t samples) {
  Staircase staircase;
  staircase.rows.resize(schedule.workers.size());
  staircase.activations.assign(std::size_t(schedule.stages), 0);
  if (schedule.applied(samples) == 0) return staircase;
  const Simulation simulation =
      simulate(schedule, {.samples = samples,
                          .stages = std::vector<plan::StageCosts>(std::size_t(schedule.stages)),
                          .ticks = true,
                          .events = true});
  for (auto& row : staircase.rows) row.resize(std::size_t(simulation.total_ms));
  std::vector<std::optional<Cell>*> latest(staircase.rows.size(), nullptr);  // [worker]
  for (const SimulatedAction& event : simulation.events) {
    std::optional<Cell>*& cell = latest[std::size_t(event.worker)];
    if (event.action.op == Op::update) {
      if (cell) (*cell)->updates = true;
    } else {
      cell = &staircase.rows[std::size_t(event.worker)][std::size_t(event.start_ms)];
      *cell = Cell{event.action};
    }
  }
  for (std::size_t stage = 0; stage < simulation.memory.size(); ++stage)
    staircase.activations[stage] = simulation.memory[stage].samples;
  return staircase;
}

std::string timeline_svg(const Schedule& schedule, const Simulation& simulation,
                         const std::string& title, double until_ms) {
  return Picture(schedule, simulation, title, until_ms).svg();
}

}  // namespace millrace::engine
