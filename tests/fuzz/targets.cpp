#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <utility>  // Asio 1.74 uses it without including it

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "engine/plan_files/profile_json.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"
#include "io/source/labels.h"
#include "io/source/picture_headers.h"
#include "stages/safetensors.h"
#include "tests/complaint.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/config/config.h"
#include "tools/cli/compare/compare.h"
#include "tools/page/json.h"
#include "tools/page/site.h"

namespace millrace::fuzz {
namespace {

namespace net = boost::asio;

/// `text` as a file in memory; the same path for every input of a process.
std::string as_file(const std::string& text) {
  static const std::string path = [] {
    const int file = memfd_create("input", MFD_CLOEXEC);
    if (file < 0) std::abort();
    return "/proc/self/fd/" + std::to_string(file);
  }();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return path;
}

/// A config file, and its differences from the defaults, as after a reload.
void config(const std::string& text) {
  using namespace app;
  complaint<ConfigError>([&] {
    const Config config = parse_config(text, "c.toml", {});
    (void)to_toml(config);
    (void)differences(parse_config("", "d.toml", {}), config);
  });
}

void csv(const std::string& text) {
  complaint<std::invalid_argument>([&] { (void)engine::verify(engine::parse_schedule_csv(text)); });
}

void graph(const std::string& text) {
  complaint<engine::plan::ProfileError>(
      [&] { (void)engine::plan::profile_from_graph(text, "g", 64); });
}

/// Headers of picture and video files.
void headers(const std::string& text) {
  const std::string file = as_file(text);
  (void)io::picture_size(file);
  (void)io::is_cut_jpeg(file);
  (void)io::webp_orientation(file);
  (void)io::cut_avi_duration(file);
}

/// Reads the answers; false: there were none.
bool take_answers(int viewer) {
  char answer[64 << 10];
  bool some = false;
  while (recv(viewer, answer, sizeof answer, 0) > 0) some = true;
  return some;
}

/// One connection's bytes: requests, and WebSocket frames behind one that upgrades. Served on this
/// thread, without a server and its clock.
void http(const std::string& text) {
  using namespace page;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  (void)!send(ends[1], text.data(), text.size(), MSG_NOSIGNAL);
  shutdown(ends[1], SHUT_WR);

  static const Gate gate(web_options("127.0.0.1:0", ""), 80);
  Controls controls({});
  const WebSubject subject{.look = [] { return Snapshot{}; }, .controls = &controls};
  net::io_context context{1};
  Site site(context, gate, subject);
  net::co_spawn(context, serve(site, net::ip::tcp::socket(context, net::ip::tcp::v4(), ends[0])),
                [](std::exception_ptr thrown) {
                  if (thrown) std::rethrow_exception(thrown);  // none may be
                });
  bool more = true;
  while (more) {
    const bool worked = context.poll() > 0;
    more = take_answers(ends[1]) || worked;
  }
  site.publisher.stop();  // ends viewers that stay
  for (Line& line : site.lines) line.hang_up();
  context.run();
  close(ends[1]);
}

/// A file, and a label during a run.
void labels(const std::string& text) {
  complaint<io::LabelError>(
      [&] { (void)io::read_labels(as_file(text)).of(3, std::chrono::seconds(2)); });
  io::LiveLabels live({"day", "night"});
  (void)live.hear(text);
  (void)live.of(17);
}

void profile(const std::string& text) {
  complaint<engine::plan::ProfileError>([&] { (void)engine::plan::profile_from_json(text, "p"); });
}

void report(const std::string& text) {
  complaint<std::invalid_argument>(
      [&] { (void)cli::compare_text({cli::read_report(as_file(text))}); });
}

/// Weights and checkpoints.
void safetensors(const std::string& text) {
  complaint<stages::WeightsError>([&] { (void)app::read_checked(as_file(text)); });
}

/// A request to the controls.
void command(const std::string& text) {
  page::Controls controls({});
  (void)page::obey(text, controls);
}

}  // namespace

const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all = {
      {"command", command}, {"config", config},
      {"csv", csv},         {"graph", graph},
      {"headers", headers}, {"http", http},
      {"labels", labels},   {"profile", profile},
      {"report", report},   {"safetensors", safetensors}};
  return all;
}

}  // namespace millrace::fuzz

#ifdef MILLRACE_FUZZER

/// libFuzzer's entry: runs the target that the environment names.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const auto run = millrace::fuzz::targets().at(std::getenv("MILLRACE_FUZZ_TARGET"));
  run(std::string(reinterpret_cast<const char*>(bytes), size));
  return 0;
}

#endif
