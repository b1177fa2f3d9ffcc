// The wheel's codecs: Pillow and PyAV, in a Python process of their own (_decode.py, beside this
// module). A request is a line of JSON, its answer another, each followed by as many bytes as its
// "bytes" says.
#include <dlfcn.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include <opencv2/imgcodecs.hpp>

#include "io/files/descriptor.h"
#include "io/source/codecs.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

using Json = nlohmann::json;

/// Thread-bound. Throws std::runtime_error if Python can't be started, has ended or says why not.
class Python {
 public:
  Python() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no socket for the decoder");
    ours_ = Descriptor(ends[0]);
    const Descriptor its(ends[1]);
    Dl_info here{};
    dladdr(&millrace_codecs, &here);
    const std::string module = here.dli_fname;
    std::string script = module.substr(0, module.rfind('/') + 1) + "_decode.py";
    const char* const named = std::getenv("MILLRACE_PYTHON");
    std::string python = named ? named : "python3";
    char* const words[] = {python.data(), script.data(), nullptr};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawnattr_t own_group;  // so that Ctrl-C leaves it to this program to end it
    posix_spawnattr_init(&own_group);
    posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawnp(&process_, words[0], &files, &own_group, words, environ);
    posix_spawnattr_destroy(&own_group);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw std::runtime_error("needs Python: " + python + " can't be run");
  }
  ~Python() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Python(const Python&) = delete;

  void ask(const Json& request, void* bytes = nullptr, std::size_t count = 0) {
    std::string line = request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    move_all(send, line.data(), line.size());
    move_all(send, bytes, count);
  }

  Json answer() {
    std::string line;
    for (char c = 0; receive(&c, 1), c != '\n';) line += c;
    Json said = Json::parse(line);
    if (said.contains("error")) throw std::runtime_error(said["error"].get<std::string>());
    return said;
  }

  void receive(void* to, std::size_t count) { move_all(recv, to, count); }

 private:
  /// `move`: recv or send.
  template <class Move>
  void move_all(const Move& move, void* bytes, std::size_t count) {
    for (std::size_t done = 0; done < count;) {
      const ssize_t more =
          move(ours_.get(), static_cast<char*>(bytes) + done, count - done, MSG_NOSIGNAL);
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) throw std::runtime_error("the decoder in Python has ended");
      done += std::size_t(more);
    }
  }

  Descriptor ours_;
  pid_t process_ = 0;
};

/// One process does all pictures, in turn.
template <class Work>
auto with_pictures(const Work& work) {
  static std::mutex mutex;
  static std::unique_ptr<Python> python;
  const std::lock_guard lock(mutex);
  if (!python) python = std::make_unique<Python>();
  try {
    return work(*python);
  } catch (...) {
    python.reset();  // it may have ended: the next picture gets a new one
    throw;
  }
}

cv::Mat imread(const std::string& path, int flags) {
  const char* const mode = flags == cv::IMREAD_COLOR       ? "BGR"
                           : flags == cv::IMREAD_GRAYSCALE ? "L"
                                                           : "";
  return with_pictures([&](Python& python) {
    python.ask({{"read", path}, {"mode", mode}});
    const Json said = python.answer();
    if (said["height"] == 0) return cv::Mat();
    cv::Mat picture(said["height"].get<int>(), said["width"].get<int>(),
                    CV_8UC(said["channels"].get<int>()));
    python.receive(picture.data, picture.total() * picture.elemSize());
    return picture;
  });
}

std::string encode(const cv::Mat& picture, int quality) {
  const std::size_t size = picture.total() * picture.elemSize();
  return with_pictures([&](Python& python) {
    python.ask({{"encode", quality == 0 ? "PNG" : "JPEG"},
                {"bytes", size},
                {"height", picture.rows},
                {"width", picture.cols},
                {"channels", picture.channels()},
                {"quality", quality}},
               picture.data, size);
    std::string file(python.answer()["bytes"].get<std::size_t>(), 0);
    python.receive(file.data(), file.size());
    return file;
  });
}

class PythonVideo : public Source {
 public:
  PythonVideo(const SourceOptions& options, const std::string& path)
      : options_(options), path_(path) {
    const Json opened = open();
    info_ = {.kind = "ffmpeg",
             .caps = "FFmpeg " + opened["codec"].get<std::string>(),
             .width = opened["width"].get<int>(),
             .height = opened["height"].get<int>(),
             .fps = plausible_rate(opened["fps"].get<double>()),
             .duration_s = opened["duration"].get<double>()};
  }

  SourceInfo info() const override { return info_; }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    const Json said = of_source([&] { return python_->answer(); });
    if (said.contains("corrupt")) return ReadStatus::corrupt;
    if (said.contains("end")) {
      require_whole(options_, info_, said["end"].get<double>());
      return ReadStatus::end;
    }
    out.reshape(said["width"].get<int>(), said["height"].get<int>(), options_.channels);
    python_->receive(out.pixels.data(), out.pixels.size());
    out.pts = stamp_of(said["time"].get<double>());
    return ReadStatus::frame;
  }

  bool rewind() override {
    open();
    return true;
  }

 private:
  /// Gives the video's properties.
  Json open() {
    return of_source([&] {
      python_ = std::make_unique<Python>();
      python_->ask(
          {{"video", path_}, {"channels", options_.channels}, {"most", options_.max_pixels}});
      return python_->answer();
    });
  }

  /// Names the source in what `work` throws.
  template <class Work>
  Json of_source(const Work& work) {
    try {
      return work();
    } catch (const std::runtime_error& wrong) {
      throw source_error(options_, wrong.what());
    }
  }

  const SourceOptions options_;
  const std::string path_;
  SourceInfo info_;
  std::unique_ptr<Python> python_;
};

}  // namespace

const Codecs millrace_codecs = {
    .imread = imread,
    .encode = encode,
    .open_ffmpeg = [](const SourceOptions& options, const std::string& path)
        -> std::unique_ptr<Source> { return std::make_unique<PythonVideo>(options, path); },
    // GStreamer turns all others; not to ask saves each file a start of Python.
    .ffmpeg_alone_turns = [](const std::string&) { return false; },
};

}  // namespace millrace::io
