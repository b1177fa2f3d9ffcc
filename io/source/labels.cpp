#include "io/source/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/text/nearest_name.h"

namespace millrace::io {
namespace {

constexpr std::uintmax_t kMostBytes = 64 << 20;
constexpr std::size_t kMostRows = 4'000'000;
constexpr std::size_t kMostClasses = 1000;
constexpr std::size_t kLongestName = 200;
constexpr std::size_t kLongestJson = 4096;
constexpr double kLastFrame = 9e15;            // exact in a double
constexpr std::size_t kMostWaiting = 100'000;  // labels

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// A CSV field without blanks and the quotes that some programs put around each.
std::string field_of(std::string_view text) {
  text = trimmed(text);
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::string(text);
  std::string field;
  bool doubled = false;
  for (const char c : text.substr(1, text.size() - 2)) {
    doubled = c == '"' && !doubled && !field.empty() && field.back() == '"';
    if (!doubled) field += c;
  }
  return field;
}

bool is_control(unsigned char c) {
  return c < ' ';
}

/// The beginning of arbitrary text, on one line.
std::string shown(std::string_view text) {
  std::string out = "\"" + std::string(text.substr(0, 40)) + "\"";
  std::ranges::replace_if(out, is_control, '?');
  return out;
}

/// False unless all of `text` is one finite number >= 0.
bool parse_key(std::string_view text, bool whole, double& key) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), key);
  return bad == std::errc() && end == text.data() + text.size() && std::isfinite(key) && key >= 0 &&
         (!whole || (key == std::floor(key) && key <= kLastFrame));
}

/// A label in JSON: a line of a file, or a message during a run.
struct LabelRow {
  std::optional<double> frame, time;  ///< number; seconds
  std::optional<std::string> name;    ///< class; none: the class ends
};

/// Invalid JSON is "discarded", which is no object.
nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text.substr(0, kLongestJson), nullptr, /*allow_exceptions=*/false);
}

/// {"frame": 17, "class": "train"} or {"time": 3.5, "class": null}. Throws std::invalid_argument.
LabelRow parse_label(const nlohmann::json& json) {
  const auto fail = [] {
    throw std::invalid_argument(
        "a label is JSON, as {\"frame\": 17, \"class\": \"day\"}, or with a \"time\" in seconds");
  };
  if (!json.is_object() || !json.contains("class")) fail();
  LabelRow row;
  for (const auto& [key, value] : json.items()) {
    if (key == "class") {
      if (!value.is_number_integer() && !value.is_string() && !value.is_null()) fail();
      if (value.is_null()) continue;
      row.name = value.is_string() ? value.get<std::string>() : value.dump();
    } else {
      if ((key != "frame" && key != "time") || !value.is_number()) fail();
      const double number = value.get<double>();
      if (!(number >= 0 && number <= kLastFrame)) fail();
      if (key == "frame" && number != std::floor(number)) fail();
      (key == "frame" ? row.frame : row.time) = number;
    }
  }
  if (row.name && (row.name->empty() || std::ranges::any_of(*row.name, is_control))) fail();
  if (row.frame && row.time) fail();
  return row;
}

}  // namespace

int Labels::of(std::int64_t number, std::chrono::nanoseconds pts) const {
  const double key = by_time_ ? double(pts.count()) / 1e9 : double(number);
  const auto after = std::ranges::upper_bound(rows_, key, {}, &Row::key);
  if (after == rows_.begin()) return -1;
  const Row& row = *(after - 1);
  return by_time_ || row.key == key ? row.label : -1;
}

std::vector<std::string> Labels::without_rows() const {
  std::vector<std::string> all = classes_;
  for (const Row& row : rows_)
    if (row.label >= 0) all[std::size_t(row.label)].clear();
  std::erase(all, "");
  return all;
}

std::pair<std::size_t, std::int64_t> Labels::beyond(std::int64_t frames) const {
  if (by_time_) return {0, -1};
  const auto first = std::ranges::lower_bound(rows_, double(frames), {}, &Row::key);
  return {std::size_t(rows_.end() - first), rows_.empty() ? -1 : std::int64_t(rows_.back().key)};
}

class LabelReader {
 public:
  LabelReader(const std::string& path, std::vector<std::string> classes)
      : path_(path), given_(std::move(classes)) {}

  Labels read() {
    std::error_code failed;
    if (!std::filesystem::is_regular_file(path_, failed))
      throw LabelError(path_ + (std::filesystem::exists(path_, failed) ? ": is not a regular file"
                                                                       : ": no such file"));
    if (std::filesystem::file_size(path_, failed) > kMostBytes)
      throw LabelError(path_ + ": is larger than 64 MiB");
    std::ifstream file(path_);
    if (!file) throw LabelError(path_ + ": cannot be read");
    for (std::string text; std::getline(file, text);) {
      std::string_view all = trimmed(text);
      if (line_ == 0 && all.starts_with("\xef\xbb\xbf")) all.remove_prefix(3);  // a BOM
      if (++line_ == 1) json_ = all.starts_with('{');
      json_ ? read_json(all) : line_ == 1 ? read_header(all) : read_row(all);
    }
    if (known_.empty()) throw LabelError(path_ + ": contains no class");
    name_classes();
    return std::move(labels_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw LabelError(path_ + ":" + std::to_string(line_) + ": " + what);
  }

  void read_header(std::string_view all) {
    const std::size_t comma = all.find(',');
    const std::string key = field_of(all.substr(0, comma));
    if (comma == all.npos || (key != "frame" && key != "time") ||
        field_of(all.substr(comma + 1)) != "class")
      fail("must be \"frame,class\" or \"time,class\", not " + shown(all));
    labels_.by_time_ = key == "time";
  }

  void read_row(std::string_view all) {
    if (all.empty()) return;
    const std::size_t comma = all.find(',');
    const std::string first = field_of(all.substr(0, comma));
    Labels::Row row;
    if (comma == all.npos || !parse_key(first, !labels_.by_time_, row.key)) {
      fail(std::string(labels_.by_time_ ? "seconds" : "a frame number, 0 or more,") +
           " and a class were expected here, not " + shown(all));
    }
    add(row.key, first, field_of(all.substr(comma + 1)));
  }

  void read_json(std::string_view all) {
    if (all.empty()) return;
    LabelRow row;
    try {
      row = parse_label(parse_json(all));
    } catch (const std::invalid_argument& error) {
      fail(error.what() + std::string(", not ") + shown(all));
    }
    if (line_ == 1) labels_.by_time_ = row.time.has_value();
    const std::optional<double>& key = labels_.by_time_ ? row.time : row.frame;
    if (!key) fail(labels_.by_time_ ? "\"time\" is missing" : "\"frame\" is missing");
    add(*key, all, row.name.value_or(""));
  }

  void add(double key, std::string_view text, std::string_view name) {
    std::vector<Labels::Row>& rows = labels_.rows_;
    if (!rows.empty() && key <= rows.back().key)
      fail(shown(text) + " does not come after line " + std::to_string(row_line_) + "'s");
    if (rows.size() == kMostRows) fail("more than 4 million rows");
    rows.push_back({key, number_of(name)});
    row_line_ = line_;
  }

  /// A class's number in order of appearance; -1 if the class ends.
  int number_of(std::string_view name) {
    if ((!json_ && name.find(',') != name.npos) || name.size() > kLongestName)
      fail("a class is one name of at most 200 bytes, not " + shown(name));
    if (name.empty() && !labels_.by_time_) fail("the class is missing");
    if (name.empty()) return -1;
    if (!given_.empty() && std::ranges::find(given_, name) == given_.end()) {
      fail("task.classes has no " + shown(name) + "; the nearest is \"" +
           nearest_name(name, given_) + "\"");
    }
    const int number = known_.try_emplace(std::string(name), int(known_.size())).first->second;
    if (known_.size() > kMostClasses) fail("more than 1000 classes");
    return number;
  }

  /// In the given order; otherwise numbers 0 to N-1 in numeric order, names in alphabetical order.
  void name_classes() {
    std::vector<std::string>& classes = labels_.classes_;
    for (const auto& [name, number] : known_) classes.push_back(name);
    std::vector<std::string> numbers;
    for (std::size_t n = 0; n < known_.size(); ++n) numbers.push_back(std::to_string(n));
    if (std::is_permutation(numbers.begin(), numbers.end(), classes.begin())) classes = numbers;
    if (!given_.empty()) classes = given_;
    std::vector<int> place(known_.size());
    for (const auto& [name, number] : known_)
      place[std::size_t(number)] = int(std::ranges::find(classes, name) - classes.begin());
    for (Labels::Row& row : labels_.rows_)
      if (row.label >= 0) row.label = place[std::size_t(row.label)];
  }

  const std::string path_;
  const std::vector<std::string> given_;  ///< classes; empty: any
  Labels labels_;
  bool json_ = false;
  std::size_t line_ = 0, row_line_ = 0;  ///< this line; the previous row's
  std::map<std::string, int> known_;     ///< classes, numbered by first appearance
};

Labels read_labels(const std::string& path, std::vector<std::string> classes) {
  return LabelReader(path, std::move(classes)).read();
}

std::string LiveLabels::hear(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  const bool forgets = json.is_object() && json.size() == 1 && json.contains("forget");
  LabelRow row;
  try {
    row = parse_label(forgets ? nlohmann::json{{"class", json["forget"]}} : json);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  if (row.time) return "during a run a label is for a frame number, or for all frames from now on";
  const auto found = std::find(classes_.begin(), classes_.end(), row.name.value_or(""));
  if (row.name && found == classes_.end()) {
    const std::string told = row.name->substr(0, 40);
    std::string known;
    for (const std::string& name : classes_) known += (known.empty() ? "" : ", ") + name;
    return "unknown class \"" + told + "\"; there are " + known + "; the nearest is \"" +
           nearest_name(told, classes_) + "\"";
  }
  const int label = row.name ? int(found - classes_.begin()) : -1;
  const std::lock_guard lock(mutex_);
  if (forgets) return forget(label);
  if (!row.frame) {
    now_ = label;
    heard_ = Clock::now();
    return "";
  }
  const auto frame = std::int64_t(*row.frame);
  if (frame < next_) return "frame " + std::to_string(frame) + " has already passed";
  if (to_come_.size() == kMostWaiting)
    return "more than 100000 labels of frames that have not arrived yet";
  to_come_[frame] = label;
  return "";
}

std::string LiveLabels::forget(int label) {
  if (!remembered_) return "this run remembers no labels: replay.kind is not \"ridge\"";
  if (label < 0) return "\"forget\" needs a class";
  if (now_ == label) now_ = -1;
  std::erase_if(to_come_, [&](const auto& coming) { return coming.second == label; });
  forgotten_.insert(label);
  return "";
}

void LiveLabels::remember(std::chrono::steady_clock::duration limit) {
  const std::lock_guard lock(mutex_);
  remembered_ = true;
  limit_ = limit;
}

std::set<int> LiveLabels::take_forgotten() {
  const std::lock_guard lock(mutex_);
  return std::exchange(forgotten_, {});
}

std::string LiveLabels::now() const {
  const std::lock_guard lock(mutex_);
  const int label = label_now();
  return label < 0 ? "" : classes_[std::size_t(label)];
}

int LiveLabels::of(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  next_ = number + 1;
  const auto told = to_come_.extract(number);
  return told ? told.mapped() : label_now();
}

std::pair<std::size_t, std::int64_t> LiveLabels::waiting() const {
  const std::lock_guard lock(mutex_);
  return {to_come_.size(), to_come_.empty() ? -1 : to_come_.rbegin()->first};
}

Teller teller_of(Labels labels) {
  const int classes = int(labels.classes().size());
  return {
      .tell = [labels = std::move(labels)](Frame& frame, auto number,
                                           auto since) { frame.label = labels.of(number, since); },
      .classes = classes};
}

Teller teller_of(std::shared_ptr<LiveLabels> labels) {
  return {.tell = [labels = std::move(labels)](Frame& frame, auto number, auto) {
    frame.label = labels->of(number);
  }};
}

}  // namespace millrace::io
