#include "tools/app/ranks/rank_team.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>

#include "engine/pipeline/rank_options.h"
#include "io/source/source.h"
#include "stages/safetensors.h"
#include "tools/app/assembly.h"
#include "tools/app/outputs/report.h"
#include "tools/app/provenance.h"

namespace millrace::app {
namespace {

const char* name_of(engine::Cargo cargo) {
  constexpr const char* kNames[engine::kCargos] = {"activation",
                                                   "gradient",
                                                   "target",
                                                   "prediction",
                                                   "release",
                                                   "sample",
                                                   "gradients of a replica",
                                                   "turn"};
  return kNames[int(cargo)];
}

nlohmann::ordered_json to_json(const engine::LinkTime& link) {
  return {{"from", link.from},   {"to", link.to},       {"carries", name_of(link.cargo)},
          {"stage", link.stage}, {"bytes", link.bytes}, {"by", link.apart ? "NCCL" : "MPI"},
          {"ms", link.ms}};
}

}  // namespace

void require_ranks(const Config& config, const engine::TrainerOptions& options, int ranks) {
  const engine::Schedule schedule = engine::schedule_of(options);
  require_grid(config, options, ranks);
  ranks /= config.pipeline.tensor * copies_of(config);
  std::vector<int> dealt = config.pipeline.ranks;
  if (dealt.empty()) dealt = engine::deal_workers(int(schedule.workers.size()), ranks);
  check_key(config, "pipeline.ranks", [&] { engine::require_ranks(schedule, dealt, ranks); });
  if (config.replay.kind != "none")
    throw config.error("replay.kind", "replay is not supported with ranks: use \"none\"");
}

RankTeam::RankTeam(engine::Exchange& exchange, const Config& config, Waits waits)
    : exchange_(exchange), waits_(std::move(waits)), members_(std::size_t(exchange.ranks())) {
  members_[0] = {host_name(), getpid()};
  engine::GpusOfRanks gpus(members_.size());
  gpus[0] = capture::gpus_here();
  each(Word::hello, [&](int rank, engine::ByteReader& letter) {
    const std::string wrong = difference(letter, config);
    if (!wrong.empty()) throw ConfigError("rank " + std::to_string(rank) + " " + wrong);
    gpus[std::size_t(rank)] = letter.list<capture::GpuId>();
  });
  tell_all(letter(Word::join).put(gpus));
  grid_ = std::make_unique<RankGrid>(exchange, config, std::move(gpus));
}

template <class Read>
void RankTeam::each(Word expected, const Read& read) {
  std::set<int> missing;
  for (int rank = 1; rank < exchange_.ranks(); ++rank) missing.insert(rank);
  while (!missing.empty()) {
    const engine::Exchange::Letter letter = await_letter(exchange_, [&] {
      std::string whom = "rank";
      for (const int rank : missing) whom += " " + std::to_string(rank);
      if (waits_ && waits_(whom)) throw Stopped("stopped while waiting for " + whom);
    });
    engine::ByteReader reader(letter.text);
    const Word word = reader.get<Word>();
    if (word == Word::failed) {
      const int code = reader.get<int>();
      const std::string what =
          "rank " + std::to_string(letter.from) + ": " + std::string(reader.text());
      if (code == 2) throw ConfigError(what);
      if (code == 3) throw io::SourceError(what);
      throw std::runtime_error(what);
    }
    if (word == Word::stop)
      throw Stopped("rank " + std::to_string(letter.from) + " was asked to stop");
    if (word != expected) throw std::logic_error("a rank is out of step");
    read(letter.from, reader);
    missing.erase(letter.from);
  }
}

void RankTeam::tell_all(const engine::ByteWriter& letter) {
  for (int rank = 1; rank < exchange_.ranks(); ++rank) post(exchange_, rank, letter);
}

void RankTeam::prepare(const engine::Trainer& trainer, double fps) {
  for (int rank = 1; rank < exchange_.ranks(); ++rank) {
    post(exchange_, rank,
         write(Word::plan,
               RankPlan{.sample = trainer.options().frame(),
                        .cut = trainer.now().cut,
                        .module_ms = trainer.options().module_ms,
                        .fps = fps,
                        .weights = grid_->tensor() > 1
                                       ? grid_->whole()
                                       : engine::share_of(trainer, grid_->place_of(rank))}));
  }
  each(Word::ready, [&](int rank, engine::ByteReader& letter) {
    members_[std::size_t(rank)].host = letter.text();
    members_[std::size_t(rank)].process = letter.get<std::int64_t>();
  });
}

void RankTeam::go() {
  tell_all(letter(Word::go));
}

std::string RankTeam::look(double rate, engine::Checkpointer* checkpointer) {
  std::string line;
  while (const auto letter = next_letter(exchange_)) {
    if (take(*letter, checkpointer) != Word::stop || asked_to_stop_) continue;
    asked_to_stop_ = true;
    line = "rank " + std::to_string(letter->from) + " was asked to stop: draining the pipeline";
  }
  const RankSettings now{rate, checkpointer ? checkpointer->every() : settings_.every,
                         checkpointer ? checkpointer->asked() : settings_.asked};
  if (now != settings_) {
    settings_ = now;
    tell_all(letter(Word::settings).put(now));
  }
  return line;
}

Word RankTeam::take(const engine::Exchange::Letter& letter, engine::Checkpointer* checkpointer) {
  engine::ByteReader reader(letter.text);
  const Word word = reader.get<Word>();
  if (word == Word::part && checkpointer)
    checkpointer->add(read_as<engine::Checkpointer::Part>(reader));
  if (word == Word::share)
    shares_[letter.from % grid_->tensor()] = stages::from_safetensors(std::string(reader.text()));
  if (word == Word::source) sources_[letter.from / ranks_a_copy()] = read_as<SourceReport>(reader);
  return word;
}

std::string RankTeam::await_sources() {
  while (int(sources_.size()) < grid_->copies() - 1)
    take(await_letter(
        exchange_, [] {}, std::chrono::seconds(30)));
  for (const auto& [copy, source] : sources_)
    if (!source.error.empty())
      return "rank " + std::to_string(copy * ranks_a_copy()) + ": " + source.error;
  return "";
}

stages::StateDict RankTeam::whole(stages::StateDict mine) {
  const int tensor = grid_->tensor();
  if (tensor == 1) return mine;
  while (int(shares_.size()) < tensor - 1)
    take(await_letter(
        exchange_, [] {}, std::chrono::seconds(30)));
  std::set<std::string> names;
  for (const auto& [name, tensor] : mine) names.insert(name);
  for (const auto& [part, share] : shares_) {
    for (const auto& entry : share)
      if (names.contains(entry.first)) mine.push_back(entry);
  }
  return grid_->put_together(mine);
}

nlohmann::ordered_json RankTeam::report(const engine::Trainer& trainer,
                                        const engine::Reading& r) const {
  const engine::Schedule& schedule = trainer.schedule();
  const std::vector<engine::LinkTime> times = link_times();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    const Member& member = members_[std::size_t(rank)];
    std::vector<int> workers;
    std::set<int> stages;
    for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
      if (trainer.options().rank_of_worker[std::size_t(worker)] != grid_->place_of(rank)) continue;
      workers.push_back(worker);
      for (const int stage : engine::stages_of(schedule.workers[std::size_t(worker)]))
        stages.insert(stage);
    }
    const int in_copy = ranks_a_copy(), copy = rank / in_copy;
    const auto other = sources_.find(copy);
    std::vector<double> compute, handoff;
    for (const int stage : stages) {
      if (copy > 0 && other == sources_.end()) continue;  // lost
      compute.push_back((copy > 0 ? other->second.stage_ms : r.stage)[std::size_t(stage)]);
      handoff.push_back((copy > 0 ? other->second.handoff_ms : r.handoff)[std::size_t(stage)]);
    }
    nlohmann::ordered_json links = nlohmann::ordered_json::array();
    for (const engine::LinkTime& link : times)
      if (link.to == rank) links.push_back(to_json(link));
    all.push_back({{"rank", rank},
                   {"host", member.host},
                   {"process", member.process},
                   {"part", rank % grid_->tensor()},
                   {"workers", workers},
                   {"stages", stages},
                   {"stage_ms", compute},
                   {"handoff_ms", handoff},
                   {"links", links}});
    if (grid_->copies() > 1) all.back()["copy"] = copy;
    if (rank % in_copy == 0 && other != sources_.end()) {
      all.back()["source"] = {{"uri", io::redacted(other->second.uri)}};
      all.back()["source"].update(frames_json(other->second.frames));
    }
  }
  return all;
}

std::vector<engine::LinkTime> RankTeam::link_times() const {
  engine::Exchange& exchange = grid_->pipeline();
  std::unique_lock lock(exchange.mutex());
  std::vector<engine::LinkTime> all = exchange.times;
  lock.unlock();
  for (engine::LinkTime& link : all) {
    link.from *= grid_->tensor();
    link.to *= grid_->tensor();
  }
  return all;
}

nlohmann::ordered_json RankTeam::bottleneck_link() const {
  const std::vector<engine::LinkTime> all = link_times();
  const auto slowest = std::ranges::max_element(all, {}, &engine::LinkTime::ms);
  return slowest == all.end() ? nlohmann::ordered_json() : to_json(*slowest);
}

}  // namespace millrace::app
