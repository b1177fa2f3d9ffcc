#include "tools/app/ranks/rank_letters.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <type_traits>

#include "stages/safetensors.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

/// Identifies the build: FNV-1a over the program's bytes.
std::uint64_t build_number() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::vector<char> block(1 << 20);
  std::uint64_t hash = 14695981039346656037u;
  while (program) {
    program.read(block.data(), std::streamsize(block.size()));
    for (std::streamsize i = 0; i < program.gcount(); ++i)
      hash = (hash ^ std::uint64_t(static_cast<unsigned char>(block[std::size_t(i)]))) *
             1099511628211u;
  }
  return hash;
}

// The fields of a letter's content, in the order in which they are written and read.
template <class Content>
auto fields(Content& of) {
  using Plain = std::remove_const_t<Content>;
  if constexpr (std::is_same_v<Plain, RankPlan>) {
    return std::tie(of.sample, of.cut, of.module_ms, of.fps, of.weights);
  } else if constexpr (std::is_same_v<Plain, SourceReport>) {
    return std::tie(of.uri, of.frames, of.stage_ms, of.handoff_ms, of.error);
  } else {
    return std::tie(of.stage, of.sample, of.due.first, of.due.second, of.state);
  }
}

template <class Field>
void put(engine::ByteWriter& to, const Field& field) {
  if constexpr (std::is_same_v<Field, stages::StateDict>) {
    to.put(stages::to_safetensors(field));
  } else {
    to.put(field);
  }
}

template <class Field>
void get(engine::ByteReader& from, Field& field) {
  if constexpr (std::is_same_v<Field, stages::StateDict>) {
    field = stages::from_safetensors(std::string(from.text()));
  } else if constexpr (std::is_same_v<Field, std::string>) {
    field = from.text();
  } else if constexpr (requires { field.push_back({}); }) {
    field = from.list<typename Field::value_type>();
  } else {
    field = from.get<Field>();
  }
}

}  // namespace

void post(engine::Exchange& exchange, int to, const engine::ByteWriter& letter) {
  const std::lock_guard lock(exchange.mutex());
  exchange.post(to, engine::Exchange::About::run, letter.bytes());
}

std::optional<engine::Exchange::Letter> next_letter(engine::Exchange& exchange) {
  const std::lock_guard lock(exchange.mutex());
  return exchange.letter(engine::Exchange::About::run);
}

engine::Exchange::Letter await_letter(engine::Exchange& exchange, std::chrono::seconds patience) {
  for (const auto began = engine::Clock::now(); engine::Clock::now() - began < patience;
       std::this_thread::sleep_for(1ms)) {
    if (auto letter = next_letter(exchange)) return *letter;
  }
  throw std::runtime_error("a rank is gone: nothing was heard of it for " +
                           std::to_string(patience.count()) + " s");
}

void await_posted(engine::Exchange& exchange, std::chrono::seconds patience) {
  for (const auto began = engine::Clock::now(); engine::Clock::now() - began < patience;
       std::this_thread::sleep_for(1ms)) {
    const std::lock_guard lock(exchange.mutex());
    if (exchange.all_posted()) return;
  }
}

engine::ByteWriter hello(const Config& config) {
  return letter(Word::hello)
      .put(std::string(MILLRACE_VERSION))
      .put(build_number())
      .put(to_toml(config))
      .put(capture::gpus_here());
}

std::string difference(engine::ByteReader& from, const Config& config) {
  const std::string_view version = from.text();
  if (version != MILLRACE_VERSION)
    return "is version " + std::string(version) + ", rank 0 is " + MILLRACE_VERSION;
  if (from.get<std::uint64_t>() != build_number()) return "is another build than rank 0";
  std::istringstream theirs{std::string(from.text())}, ours{to_toml(config)};
  for (std::string their, our; std::getline(ours, our);) {
    if (!std::getline(theirs, their)) their.clear();
    if (their != our) return "has another config: " + their + ", rank 0 has " + our;
  }
  return "";
}

engine::GpusOfRanks read_gpus(engine::ByteReader& letter) {
  engine::GpusOfRanks gpus(std::size_t(letter.get<std::int64_t>()));
  for (auto& of_rank : gpus) of_rank = letter.list<capture::GpuId>();
  return gpus;
}

template <class Content>
engine::ByteWriter write(Word word, const Content& content) {
  engine::ByteWriter bytes = letter(word);
  std::apply([&](const auto&... field) { (put(bytes, field), ...); }, fields(content));
  return bytes;
}

template <class Content>
Content read_as(engine::ByteReader& letter) {
  Content content;
  std::apply([&](auto&... field) { (get(letter, field), ...); }, fields(content));
  return content;
}

template engine::ByteWriter write(Word, const RankPlan&);
template RankPlan read_as(engine::ByteReader&);
template engine::ByteWriter write(Word, const SourceReport&);
template SourceReport read_as(engine::ByteReader&);
template engine::ByteWriter write(Word, const engine::Checkpointer::Part&);
template engine::Checkpointer::Part read_as(engine::ByteReader&);

}  // namespace millrace::app
