#include "tools/app/parts.h"

#include <utility>

namespace millrace::app {

RunParts::RunParts(const Config& given, RunOptions options)
    : request(given, std::move(options)),
      team(request.options.ranks ? std::make_unique<RankTeam>(*request.options.ranks, request.config)
                                 : nullptr),
      intake(request.config, request.options.open_source),
      learner(request, intake, team.get()),
      records(request, intake, learner, team.get(), progress),
      console(request, intake, learner, records) {
  learner.feed->rest_while([this] {
    return console.paused() && !progress.stopping.load(std::memory_order_relaxed);
  });
}

}  // namespace millrace::app
