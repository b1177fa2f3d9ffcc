#include "tools/run/rank_team.h"

#include <unistd.h>

#include <set>
#include <stdexcept>

#include "engine/pipeline/rank_links.h"

namespace millrace::tools {

void require_ranks(const Config& config, const engine::TrainerOptions& options, int ranks) {
  const engine::Schedule schedule = engine::schedule_of(options);
  std::vector<int> dealt = config.pipeline.ranks;
  if (dealt.empty()) dealt = engine::deal_workers(int(schedule.workers.size()), ranks);
  try {
    engine::require_ranks(schedule, dealt, ranks);
  } catch (const std::invalid_argument& error) {
    throw config.error("pipeline.ranks", error.what());
  }
  if (config.replay.kind != "none")
    throw config.error("replay.kind", "ranks replay nothing: \"none\"");
}

RankTeam::RankTeam(engine::Exchange& exchange, const Config& config)
    : exchange_(exchange), members_(std::size_t(exchange.ranks())) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  members_[0] = {host, getpid()};
  each(Word::hello, [&](int rank, LetterReader& letter) {
    const std::string wrong = difference(letter, config);
    if (!wrong.empty()) throw ConfigError("rank " + std::to_string(rank) + " " + wrong);
  });
}

template <class Read>
void RankTeam::each(Word expected, const Read& read) {
  for (int waited = exchange_.ranks() - 1; waited > 0; --waited) {
    const engine::Exchange::Letter letter = await_letter(exchange_);
    LetterReader reader(letter.text);
    const Word word = reader.word();
    if (word == Word::failed) {
      const int code = reader.get<int>();
      const std::string what =
          "rank " + std::to_string(letter.from) + ": " + std::string(reader.text());
      if (code == 2) throw ConfigError(what);
      throw std::runtime_error(what);
    }
    if (word == Word::stop) {  // it will be asked for again
      asked_to_stop_ = true;
      ++waited;
      continue;
    }
    if (word != expected) throw std::logic_error("a rank is out of step");
    read(letter.from, reader);
  }
}

void RankTeam::tell_all(const LetterWriter& letter) {
  for (int rank = 1; rank < exchange_.ranks(); ++rank) post(exchange_, rank, letter);
}

void RankTeam::prepare(const engine::Trainer& trainer, double fps) {
  tell_all(write({.sample = trainer.sample(),
                  .cut = trainer.cut(),
                  .module_ms = trainer.module_ms(),
                  .fps = fps,
                  .weights = trainer.checkpoint()}));
  each(Word::ready, [&](int rank, LetterReader& letter) {
    members_[std::size_t(rank)].host = letter.text();
    members_[std::size_t(rank)].process = letter.get<std::int64_t>();
  });
}

void RankTeam::go() {
  tell_all(LetterWriter(Word::go));
}

std::string RankTeam::look(double rate, engine::Checkpointer* checkpointer) {
  std::string line;
  while (const auto letter = next_letter(exchange_)) {
    LetterReader reader(letter->text);
    const Word word = reader.word();
    if (word == Word::part && checkpointer) checkpointer->add(read_part(reader));
    if (word == Word::stop && !asked_to_stop_) {
      asked_to_stop_ = true;
      line = "rank " + std::to_string(letter->from) + " was asked to stop: draining the pipeline";
    }
  }
  const RankSettings now{rate, checkpointer ? checkpointer->every() : settings_.every,
                         checkpointer ? checkpointer->asked() : settings_.asked};
  if (now != settings_) {
    settings_ = now;
    tell_all(LetterWriter(Word::settings).put(now));
  }
  return line;
}

nlohmann::ordered_json RankTeam::report(const engine::Trainer& trainer,
                                        const engine::Reading& r) const {
  const engine::Schedule& schedule = trainer.schedule();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    const Member& member = members_[std::size_t(rank)];
    std::vector<int> workers;
    std::set<int> stages;
    for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
      if (trainer.rank_of_worker()[std::size_t(worker)] != rank) continue;
      workers.push_back(worker);
      for (const int stage : engine::stages_of(schedule.workers[std::size_t(worker)]))
        stages.insert(stage);
    }
    std::vector<double> compute, handoff;
    for (const int stage : stages) {
      compute.push_back(r.stage[std::size_t(stage)]);
      handoff.push_back(r.handoff[std::size_t(stage)]);
    }
    all.push_back({{"rank", rank},
                   {"host", member.host},
                   {"process", member.process},
                   {"workers", workers},
                   {"stages", stages},
                   {"stage_ms", compute},
                   {"handoff_ms", handoff}});
  }
  return all;
}

}  // namespace millrace::tools
