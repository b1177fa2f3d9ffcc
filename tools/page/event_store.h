#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/page/live_state.h"

namespace millrace::page {

/// The events that viewers see, with their pictures and the viewers' marks: the snapshots in a
/// folder, also of earlier runs, or without a folder the latest kInMemory events of this run.
/// Thread-bound.
///
/// A snapshot is FOLDER/20260102T030405Z-event-7-frame-1234.png; the file of the same name with
/// ".json", if there is one, holds the event as a JSON object. FOLDER/seen.json holds the marks.
class EventStore {
 public:
  static constexpr std::size_t kInMemory = 20;
  static constexpr std::size_t kListed = 200;

  /// `folder`: "": in memory. Present snapshots are earlier runs'.
  explicit EventStore(std::string folder) : folder_(std::move(folder)) { refresh(); }

  bool in_memory() const { return folder_.empty(); }
  /// Adds an event of this run, which has at least its number, "event". In memory only.
  void add(Json event, std::string png);
  /// Reads the folder again if it may have changed. Skips unreadable files.
  void refresh();

  /// {"count": 12, "unseen": 3, "revision": 5}; "revision" grows with every change.
  Json summary() const;
  /// The newest kListed, newest first: the event's object with "name", "picture" (its URL), "crop"
  /// ([x, y, width, height] of the frame within the picture; null: all of it), "this_run" and
  /// "mark" (null, "seen" or "normal").
  Json list() const;
  /// [x, y, width, height] of that source's events marked "normal", in pictures of that size.
  std::vector<std::array<int, 4>> normal_places(const std::string& source, int across,
                                                int down) const;
  /// A PNG file; "": there is none of that name.
  std::string picture(std::string_view name) const;

  /// The number of the event `name` if it belongs to this run, otherwise -1.
  std::int64_t number_in_this_run(std::string_view name) const;
  /// Marks the event `name`, or with "" all that have no mark yet. False: there is no such event.
  /// Throws std::runtime_error if the folder can't be written, and marks none then.
  bool mark(std::string_view name, const std::string& as);

 private:
  struct Entry {
    Json event;
    Json crop = {};
    std::string png = {};  ///< in memory only
    bool this_run = true;
    bool described = true;  ///< false: its JSON file was missing when last looked for
    std::string mark = {};
    bool operator==(const Entry&) const = default;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;
  Entry read(const std::string& name) const;

  const std::string folder_;
  Entries entries_;  ///< [name], so oldest first
  std::uint64_t revision_ = 0;
  std::timespec changed_{};  ///< time stamp of the folder at the last scan
  std::time_t scanned_ = 0;  ///< 0: never
};

}  // namespace millrace::page
