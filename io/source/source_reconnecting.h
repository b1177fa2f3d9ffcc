// A live source that reconnects whenever it breaks off or falls silent.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "io/source/backoff.h"
#include "io/source/origin_probe.h"
#include "io/source/source.h"
#include "io/source/stream_health.h"
#include "io/source/teardown.h"
#include "io/source/timeline.h"

namespace millrace::io {

/// What a ReconnectingSource is made of.
struct ReconnectParts {
  std::unique_ptr<Source> first;  ///< open
  /// Starts to open the same stream again and returns at once: pictures and errors come through
  /// read(). May throw SourceError.
  std::function<std::unique_ptr<Source>()> reopen;
  std::unique_ptr<OriginProbe> probe;  ///< may be null: attempts then follow time alone
  bool end_is_loss = true;             ///< an end of the stream counts as a break
};

/// Gives the frames of one connection after another with strictly growing stamps. While the stream
/// is away, read() returns `timeout` and never takes much longer than that. Attempts follow a
/// Backoff, from the start of one to the start of the next; one is made at once when the origin
/// becomes reachable again.
class ReconnectingSource : public Source {
 public:
  ReconnectingSource(ReconnectParts parts, const ReconnectOptions& options);
  ~ReconnectingSource() override { let_go(); }

  /// Of the latest connection that gave a picture.
  SourceInfo info() const override { return info_; }
  ReadStatus read(Frame& out, std::chrono::milliseconds timeout) override;
  bool rewind() override { return false; }
  std::shared_ptr<const StreamHealth> health() const override { return health_; }

 private:
  ReadStatus read_connected(Frame& out, std::chrono::milliseconds timeout);
  void take(Frame& out);
  void lose(const std::string& cause);
  void attempt_when_due(std::chrono::milliseconds timeout);
  void attempt();
  void let_go();
  bool came_back();
  std::chrono::milliseconds patience() const;

  const ReconnectOptions options_;
  ReconnectParts parts_;
  const std::shared_ptr<StreamHealth> health_ = std::make_shared<StreamHealth>();
  SourceInfo info_;
  Backoff backoff_;
  Timeline timeline_;
  Teardown teardown_;

  std::unique_ptr<Source> now_;         // null between attempts
  std::chrono::nanoseconds silent_{0};  // spent waiting for the next picture
  Clock::time_point last_frame_;        // of any connection
  Clock::time_point connected_since_;   // first picture of this connection
  Clock::time_point next_attempt_;
  std::optional<bool> reached_;  // the probe's last answer in this break
};

}  // namespace millrace::io
