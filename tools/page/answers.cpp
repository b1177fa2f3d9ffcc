// Requests with short answers; session.cpp has the streams.
#include <page_assets.h>

#include <algorithm>
#include <iterator>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>

#include "tools/page/json.h"
#include "tools/page/site.h"

namespace millrace::page {
namespace {

namespace http = boost::beast::http;

constexpr char kJson[] = "application/json";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kText[] = "text/plain; charset=utf-8";

constexpr std::string_view kEvents = "/events", kEvent = "/events/";

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

Response reply(const Request& request, http::status status, std::string_view type,
               std::string body) {
  Response response(status, request.version());
  response.keep_alive(request.keep_alive());
  response.set(http::field::content_type, boost::beast::string_view(type.data(), type.size()));
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Referrer-Policy", "no-referrer");
  // Other sites may neither load our resources nor put us into a frame.
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  // dygraphs places its labels by style attributes.
  response.set("Content-Security-Policy",
               "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
               "base-uri 'none'; form-action 'none'");
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

Response refuse(const Request& request, http::status status, const std::string& why) {
  return reply(request, status, kText, why + "\n");
}

std::string_view token_of(const Request& request) {
  constexpr std::string_view start = "/?token=";
  const std::string_view target = view(request.target());
  return target.starts_with(start) ? target.substr(start.size()) : std::string_view();
}

// The browser stores the cookie and asks again, so the token stays out of its history and address
// bar. Not a redirect: it would come from the page with the link, without strict cookies.
Response welcome(const Site& site, const Request& request) {
  Response response = reply(
      request, http::status::ok, kHtml,
      "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=/\"><title>Millrace</title>");
  response.set(http::field::set_cookie, site.gate.cookie());
  return response;
}

Response accept(Site& site, const Request& request) {
  site.publisher.look();
  return reply(request, http::status::accepted, kJson, "{\"accepted\": true}");
}

Response control(Site& site, const Request& request) {
  const bool label = path_of(request) == "/label";
  Controls& controls = *site.subject.controls;
  if (label && !controls.offered().hear_label)
    return refuse(request, http::status::not_found,
                  "this run takes no labels: task.labels = \"http\"");
  const std::string wrong =
      label ? controls.offered().hear_label(request.body()) : obey(request.body(), controls);
  return wrong.empty() ? accept(site, request) : refuse(request, http::status::bad_request, wrong);
}

bool is_event(std::string_view path) {
  return path.size() > kEvent.size() && path.starts_with(kEvent);
}

Response mark(Site& site, const Request& request) {
  const std::string_view path = path_of(request);
  const std::string_view name = is_event(path) ? path.substr(kEvent.size()) : "";
  const Json asked = Json::parse(request.body(), nullptr, /*allow_exceptions=*/false);
  const Json as = asked.is_object() ? asked.value("mark", Json()) : Json();
  if (as != "seen" && (as != "normal" || name.empty()))
    return refuse(request, http::status::bad_request,
                  "expected {\"mark\": \"seen\"}, or \"normal\" of one event");
  if (as == "normal") {
    const std::int64_t number = site.events.number_in_this_run(name);
    if (number < 0 || !site.subject.is_normal(number))
      return refuse(request, http::status::conflict,
                    "the detector has forgotten what that event looked like");
  }
  try {
    if (site.events.mark(name, as.get<std::string>())) return accept(site, request);
    return refuse(request, http::status::not_found, "there is no such event");
  } catch (const std::runtime_error& error) {
    return refuse(request, http::status::internal_server_error, error.what());
  }
}

Response obeyed(Site& site, const Request& request) {
  // Other sites' pages can't send this header or type without a preflight request.
  if (request["X-Millrace"] != "control" ||
      !boost::beast::iequals(request[http::field::content_type].substr(0, sizeof kJson - 1),
                             kJson)) {
    return refuse(request, http::status::forbidden,
                  "a request must be JSON with the header \"X-Millrace: control\"");
  }
  return path_of(request).starts_with(kEvents) ? mark(site, request) : control(site, request);
}

Response event_picture(Site& site, const Request& request) {
  std::string png = site.events.picture(path_of(request).substr(kEvent.size()));
  if (png.empty()) return refuse(request, http::status::not_found, "there is no such picture");
  return reply(request, http::status::ok, "image/png", std::move(png));
}

}  // namespace

std::string_view path_of(const Request& request) {
  const std::string_view target = view(request.target());
  return target.substr(0, target.find('?'));
}

std::optional<Response> instead_of_answer(const Site& site, const Request& request) {
  const auto header = [&](http::field name) { return view(request[name]); };
  if (!site.gate.host_is_ours(header(http::field::host)))
    return refuse(request, http::status::misdirected_request, "unknown host name");
  if (site.gate.is_token(token_of(request))) return welcome(site, request);
  if (!site.gate.admits(header(http::field::authorization), header(http::field::cookie))) {
    Response refusal = refuse(request, http::status::unauthorized,
                              "Open this page with ?token=TOKEN, the run's token, or send the "
                              "header \"Authorization: Bearer TOKEN\".");
    refusal.set(http::field::www_authenticate, "Bearer");
    refusal.keep_alive(false);  // don't hold connections for strangers
    return refusal;
  }
  if (!Gate::same_origin(header(http::field::origin), header(http::field::host)))
    return refuse(request, http::status::forbidden, "cross-site request refused");
  return std::nullopt;
}

Response malformed(const std::string& why) {
  Response response = refuse({}, http::status::bad_request, why);
  response.keep_alive(false);
  return response;
}

Response crowded(const Request& request) {
  return refuse(request, http::status::service_unavailable, "too many viewers; try again later");
}

Response answer(Site& site, const Request& request) {
  const std::string_view path = path_of(request);
  const bool event = is_event(path), events = path == kEvents;
  const bool command = path == "/control" || path == "/label";
  const auto asset = std::ranges::find(kAssets, path, &Asset::path);
  const bool file = asset != std::end(kAssets);
  const bool known = command || event || events || file || path == "/state" || path == "/history" ||
                     path == "/metrics" || path == "/healthz" || path == "/live";
  if (!known) return refuse(request, http::status::not_found, "not found");
  const bool post = request.method() == http::verb::post;
  if (post ? !(command || event || events) : command || request.method() != http::verb::get) {
    Response response = refuse(request, http::status::method_not_allowed, "method not allowed");
    response.set(http::field::allow, command           ? "POST"
                                     : event || events ? "GET, HEAD, POST"
                                                       : "GET, HEAD");
    return response;
  }
  if (post) return obeyed(site, request);
  if (file) return reply(request, http::status::ok, asset->type, std::string(asset->text));
  if (path == "/live")
    return refuse(request, http::status::upgrade_required, "WebSocket connections only");
  const Trend& trend = site.publisher.trend();  // first: it also refreshes the events
  if (event) return event_picture(site, request);
  if (events) return reply(request, http::status::ok, kJson, events_json(site.events));
  if (path == "/metrics") {
    return reply(request, http::status::ok, "text/plain; version=0.0.4; charset=utf-8",
                 metrics_text(trend.live().now, site.publisher.viewers()));
  }
  if (path == "/healthz") {
    const Health health = health_json(trend.live());
    return reply(request, health.ok ? http::status::ok : http::status::service_unavailable, kJson,
                 health.text);
  }
  if (path == "/history") return reply(request, http::status::ok, kJson, history_json(trend));
  std::uint64_t version;
  return reply(request, http::status::ok, kJson, *site.publisher.state(version));
}

}  // namespace millrace::page
