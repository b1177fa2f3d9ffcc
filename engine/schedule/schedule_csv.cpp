#include "engine/schedule/schedule_csv.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace millrace::engine {
namespace {

/// kOps: by their letters in cells. kImplied: PyTorch's names for communication, which is skipped.
constexpr Op kOps[] = {Op::forward, Op::backward, Op::backward_input, Op::backward_weight};
constexpr std::string_view kImplied[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F",
                                         "RECV_F",  "SEND_B",  "RECV_B"};
constexpr std::int64_t kMost = 65536;

class Reader {
 public:
  explicit Reader(const std::string& text) : rows_(text) {}

  Schedule read() {
    for (std::string row; std::getline(rows_, row); ++line_) {
      if (row.ends_with('\r')) row.pop_back();
      Program program;
      read_cells(row, ',', 0, program);
      if (program.period.empty()) fail(0, "a worker without actions");
      // The verifier allocates a vector clock per worker.
      if (workers_.size() == kMostWorkers) fail(0, "more than 256 workers");
      workers_.push_back(std::move(program));
    }
    return finish();
  }

 private:
  [[noreturn]] void fail(std::size_t column, const std::string& what) const {
    throw std::invalid_argument(std::to_string(line_) + ":" + std::to_string(column + 1) + ": " +
                                what);
  }

  void read_cells(std::string_view cells, char separator, std::size_t column, Program& program) {
    for (std::size_t begin = 0; begin <= cells.size();) {
      const std::size_t end = std::min(cells.find(separator, begin), cells.size());
      read_cell(cells.substr(begin, end - begin), column + begin, program, separator == ';');
      begin = end + 1;
    }
  }

  /// `inside`: the cell is part of an OVERLAP_F_B.
  void read_cell(std::string_view cell, std::size_t column, Program& program, bool inside) {
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    for (; !cell.empty() && cell.front() == ' '; ++column) cell.remove_prefix(1);
    if (cell.empty()) return;
    constexpr std::string_view kOverlap = ")OVERLAP_F_B";
    if (cell.front() == '(' && cell.ends_with(kOverlap)) {
      if (inside) fail(column, "OVERLAP_F_B within OVERLAP_F_B");
      read_cells(cell.substr(1, cell.size() - 1 - kOverlap.size()), ';', column + 1, program);
    } else {
      read_action(cell, column, program);
    }
  }

  void read_action(std::string_view cell, std::size_t column, Program& program) {
    std::string_view rest = cell;
    const std::int64_t stage = number(rest);
    const std::size_t length = rest.find_first_of("0123456789");
    const std::string_view name = rest.substr(0, length);
    rest.remove_prefix(name.size());
    const std::int64_t sample = number(rest);
    const bool implied = std::ranges::find(kImplied, name) != std::end(kImplied);
    const auto op =
        std::ranges::find(kOps, name, [](Op known) { return std::string(1, op_letter(known)); });
    const std::string quoted = "\"" + std::string(cell) + "\"";
    if (name == "U") {
      fail(column, quoted +
                       ": a file holds one minibatch of a schedule that flushes, and updates "
                       "follow it; this one does not flush");
    }
    if (stage < 0 || (op == std::end(kOps) && !implied) || !rest.empty())
      fail(column,
           quoted + " is no action, such as 2F0 (stage 2 forwards sample 0), 2B0, 2I0, 2W0");
    if (implied) return;
    if (sample < 0) fail(column, quoted + " names no sample, as in 2F0");
    program.period.push_back({*op, int(stage), sample, sample});
  }

  /// Reads the digits at the front and removes them; -1 if there are none or too many.
  static std::int64_t number(std::string_view& text) {
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || value > kMost) return -1;
    text.remove_prefix(std::size_t(end - text.data()));
    return value;
  }

  Schedule finish() {
    Schedule schedule{.stages = 0, .workers = std::move(workers_)};
    std::int64_t samples = 0;
    for (const Program& program : schedule.workers) {
      for (const Action& action : program.period) {
        schedule.stages = std::max(schedule.stages, action.stage + 1);
        if (action.op != Op::forward) samples = std::max(samples, action.sample + 1);
      }
    }
    if (samples == 0) fail(0, "holds no backward");
    if (schedule.stages > kMostStages) fail(0, "more than 4096 stages");
    schedule.group = schedule.in_flight = int(samples);
    for (Program& program : schedule.workers) {
      const std::vector<int> stages = stages_of(program);
      for (const int stage : stages) count_from_zero(program, stage, samples);
      for (const int stage : stages)
        program.period.push_back({Op::update, stage, samples - 1, samples - 1});
      program.stride = samples;
    }
    return schedule;
  }

  /// PyTorch 2.11's Schedule1F1B labels its last rank's forwards 1 to m.
  static void count_from_zero(Program& program, int stage, std::int64_t samples) {
    std::set<std::int64_t> forwards;
    for (const Action& action : program.period) {
      if (action.stage == stage && action.op == Op::forward) forwards.insert(action.sample);
    }
    if (std::int64_t(forwards.size()) != samples || *forwards.begin() != 1 ||
        *forwards.rbegin() != samples) {
      return;
    }
    for (Action& action : program.period) {
      if (action.stage == stage && action.op == Op::forward) action.gradient = --action.sample;
    }
  }

  static constexpr int kMostStages = 4096;
  static constexpr std::size_t kMostWorkers = 256;
  std::istringstream rows_;
  int line_ = 1;
  std::vector<Program> workers_;
};

}  // namespace

bool is_schedule_file(const std::string& name) {
  return name.ends_with(".csv");
}

Schedule parse_schedule_csv(const std::string& text) {
  return Reader(text).read();
}

Schedule read_schedule_csv(const std::string& file) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(file, error);  // a pipe is waited for
  std::ifstream in(regular ? file : "", std::ios::binary);
  if (!in) throw std::invalid_argument(file + ": cannot be read");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  try {
    return parse_schedule_csv(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file + ":" + error.what());
  }
}

}  // namespace millrace::engine
