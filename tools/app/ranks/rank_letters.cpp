#include "tools/app/ranks/rank_letters.h"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

/// Identifies the build: a hash of the program's bytes.
std::uint64_t build_number() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::vector<char> block(1 << 20);
  std::uint64_t hash = 0;
  while (program) {
    program.read(block.data(), std::streamsize(block.size()));
    const std::string_view read(block.data(), std::size_t(program.gcount()));
    hash = hash * 31 + std::hash<std::string_view>()(read);
  }
  return hash;
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

engine::Exchange::Letter await_letter(engine::Exchange& exchange, const std::function<void()>& look,
                                      std::chrono::seconds patience) {
  for (const auto began = engine::Clock::now(); engine::Clock::now() - began < patience;
       std::this_thread::sleep_for(1ms)) {
    if (auto letter = next_letter(exchange)) return *letter;
    look();
  }
  throw std::runtime_error("lost a rank: no message for " + std::to_string(patience.count()) +
                           " s");
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
  if (from.get<std::uint64_t>() != build_number()) return "runs another build than rank 0";
  std::istringstream theirs{std::string(from.text())}, ours{to_toml(config)};
  for (std::string their, our; std::getline(ours, our);) {
    if (!std::getline(theirs, their)) their.clear();
    if (their != our) return "has another config: " + their + ", rank 0 has " + our;
  }
  return "";
}

engine::GpusOfRanks read_gpus(engine::ByteReader letter) {
  engine::GpusOfRanks gpus(std::size_t(letter.get<std::int64_t>()));
  for (auto& of_rank : gpus) of_rank = letter.list<capture::GpuId>();
  return gpus;
}

}  // namespace millrace::app
