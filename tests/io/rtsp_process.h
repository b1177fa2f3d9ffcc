// The tests' RTSP server as a process that can be killed, frozen and restarted.
#pragma once

#include <gio/gio.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::io {

/// Serves from its construction to its destruction. Thread-bound.
class RtspProcess {
 public:
  /// `options`: words for the server, see rtsp_server.cpp.
  explicit RtspProcess(const std::vector<std::string>& options = {}) { start(options); }
  ~RtspProcess() { kill(); }
  RtspProcess(const RtspProcess&) = delete;
  RtspProcess& operator=(const RtspProcess&) = delete;

  std::string uri(const std::string& path) const {
    return "rtsp://127.0.0.1:" + std::to_string(port_) + path;
  }

  void freeze() { g_subprocess_send_signal(process_, SIGSTOP); }
  void thaw() { g_subprocess_send_signal(process_, SIGCONT); }
  /// Without warning.
  void kill() {
    if (!process_) return;
    g_subprocess_force_exit(process_);
    g_subprocess_wait(process_, nullptr, nullptr);
    g_clear_object(&process_);
  }
  /// On the same port; returns when it listens.
  void restart(const std::vector<std::string>& options = {}) {
    kill();
    start(options);
  }

 private:
  void start(const std::vector<std::string>& options) {
    const std::string port = "port=" + std::to_string(port_);
    std::vector<const char*> words = {MILLRACE_RTSP_SERVER, port.c_str()};
    for (const std::string& option : options) words.push_back(option.c_str());
    words.push_back(nullptr);
    const auto pipes =
        GSubprocessFlags(G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE);
    process_ = g_subprocess_newv(words.data(), pipes, nullptr);
    char answer[16] = "";
    GInputStream* const out = process_ ? g_subprocess_get_stdout_pipe(process_) : nullptr;
    if (!out || g_input_stream_read(out, answer, sizeof answer - 1, nullptr, nullptr) <= 0)
      throw std::runtime_error("the RTSP server did not start");
    port_ = std::atoi(answer);
  }

  int port_ = 0;  // any free one the first time
  GSubprocess* process_ = nullptr;
};

}  // namespace millrace::io
