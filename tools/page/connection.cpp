#include "tools/page/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <poll.h>

namespace millrace::page {
namespace {

constexpr std::chrono::seconds kPatience{10};  // for a request, a response, a state, a picture
constexpr std::chrono::seconds kSilence{2};    // then a picture is repeated: the viewer may be gone
constexpr int kUnderWay = 2;  // unconfirmed messages: one travels while the page draws another

/// Which of kPictureNames a request wants to watch; their number if none.
std::size_t picture_of(const Site& site, const Request& request) {
  constexpr std::string_view folder = "/picture/";
  const std::string_view path = request.path();
  if (!site.subject.pictures || request.method != "GET" || !path.starts_with(folder))
    return kPictureNames.size();
  return std::size_t(
      std::find(kPictureNames.begin(), kPictureNames.end(), path.substr(folder.size())) -
      kPictureNames.begin());
}

}  // namespace

Connection::Connection(const Site& site, int socket)
    : site_(site), socket_(socket), deadline_(Clock::now() + kPatience) {}

Connection::~Connection() {
  ::close(socket_);
}

short Connection::events() const {
  if (!out_.empty()) return POLLOUT;  // nothing is read from a viewer that does not read
  return role_ == Role::picture ? 0 : POLLIN;
}

void Connection::serve(short events) {
  if (events & POLLOUT) flush();
  if (events & POLLIN) {
    read();
  } else if (events & (POLLERR | POLLHUP | POLLNVAL)) {
    over_ = true;
  }
  while (!over_ && role_ == Role::asks && take_request()) {
  }
}

void Connection::read() {
  char bytes[4096];
  const ssize_t length = ::recv(socket_, bytes, sizeof bytes, 0);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  over_ = over_ || length <= 0;
  if (over_) return;
  in_.append(bytes, std::size_t(length));
  if (role_ == Role::live) take_frames();
}

/// False if there is no whole request yet.
bool Connection::take_request() {
  Request request;
  const std::optional<std::size_t> length = parse_request(in_, request);
  over_ = !length;
  if (over_ || *length == 0) return false;
  in_.erase(0, *length);
  deadline_ = Clock::now() + kPatience;
  Response response;
  if (admitted(site_, request, response)) {
    const std::size_t picture = picture_of(site_, request);
    if (picture < kPictureNames.size()) {
      watch_picture(picture);
      return true;
    }
    if (request.path() == "/live" && !request.websocket_key.empty()) {
      role_ = Role::live;
      room_ = kUnderWay;
      send(websocket_accepted(request.websocket_key));
      take_frames();
      return true;
    }
    response = answer(site_, request);
  }
  role_ = Role::answers;
  last_ = !request.keep_alive;
  send(response_bytes(request, response));
  return true;
}

void Connection::watch_picture(std::size_t index) {
  role_ = Role::picture;
  picture_ = index;
  send(
      std::string("HTTP/1.1 200 OK\r\n"
                  "Content-Type: multipart/x-mixed-replace; boundary=frame\r\n"
                  "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                  "Cross-Origin-Resource-Policy: same-origin\r\n"
                  "Connection: close\r\n\r\n--frame\r\n"));
}

/// Any message from the page confirms one of ours.
void Connection::take_frames() {
  BrowserFrame frame;
  while (role_ == Role::live) {
    const std::optional<std::size_t> length = parse_frame(in_, frame);
    over_ = over_ || !length;
    if (over_ || *length == 0) return;
    in_.erase(0, *length);
    if (frame.opcode == Opcode::ping) {
      send(frame_header(Opcode::pong, frame.payload.size()) + frame.payload);
    } else if (frame.opcode == Opcode::close) {
      role_ = Role::answers;
      last_ = true;
      send(frame_header(Opcode::close, frame.payload.size()) + frame.payload);
    } else if (frame.opcode != Opcode::pong && frame.final) {
      room_ = std::min(room_ + 1, kUnderWay);
      if (out_.empty()) all_sent();
    }
  }
}

bool Connection::send_latest() {
  while (!over_ && out_.empty() && (role_ == Role::picture || (role_ == Role::live && room_ > 0))) {
    if (!(role_ == Role::live ? send_newer() : send_newer_picture())) return true;
  }
  return false;
}

bool Connection::send_newer() {
  std::uint64_t version = 0;
  const Bytes state = site_.publisher.state(version);
  if (version != state_seen_) {
    state_seen_ = version;
    send_message(Opcode::text, state);
    return true;
  }
  PictureSet* const set = site_.publisher.pictures(version);
  if (!set || version == pictures_seen_) return false;
  pictures_seen_ = version;
  send_message(Opcode::binary, set->message());
  return true;
}

bool Connection::send_newer_picture() {
  std::uint64_t version = 0;
  PictureSet* const set = site_.publisher.pictures(version);
  const Clock::time_point now = Clock::now();
  if (!set || (version == pictures_seen_ && now - last_part_ < kSilence)) return false;
  pictures_seen_ = version;
  last_part_ = now;
  deadline_ = now + kPatience;
  const Bytes file = set->jpeg(picture_);
  out_.push_back(std::make_shared<const std::string>(
      "Content-Type: image/jpeg\r\nContent-Length: " + std::to_string(file->size()) + "\r\n\r\n"));
  out_.push_back(file);
  send(std::string("\r\n--frame\r\n"));  // at once: a browser shows a part when it ends
  return true;
}

void Connection::send_message(Opcode opcode, Bytes payload) {
  --room_;
  deadline_ = Clock::now() + kPatience;
  out_.push_back(std::make_shared<const std::string>(frame_header(opcode, payload->size())));
  send(std::move(payload));
}

void Connection::send(std::string bytes) {
  send(std::make_shared<const std::string>(std::move(bytes)));
}

void Connection::send(Bytes bytes) {
  out_.push_back(std::move(bytes));
  flush();
}

void Connection::flush() {
  while (!out_.empty()) {
    const std::string& front = *out_.front();
    const ssize_t taken = ::send(socket_, front.data() + sent_, front.size() - sent_, MSG_NOSIGNAL);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) {
      over_ = over_ || errno != EAGAIN;
      deadline_ = std::min(deadline_, Clock::now() + kPatience);
      return;
    }
    sent_ += std::size_t(taken);
    if (sent_ < front.size()) continue;
    out_.pop_front();
    sent_ = 0;
  }
  all_sent();
}

void Connection::all_sent() {
  if (role_ == Role::live && room_ == 0) return;  // the page has to confirm one by its deadline
  deadline_ = Clock::time_point::max();
  if (role_ != Role::answers) return;
  role_ = Role::asks;
  deadline_ = Clock::now() + kPatience;
  over_ = over_ || last_;
}

}  // namespace millrace::page
