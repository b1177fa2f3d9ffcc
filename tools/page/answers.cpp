// Requests that have one answer.
#include "tools/page/assets.h"
#include "tools/page/connection.h"
#include "tools/page/json.h"
#include "tools/page/metrics.h"

namespace millrace::page {
namespace {

constexpr char kJson[] = "application/json";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kText[] = "text/plain; charset=utf-8";

Response refuse(int status, const std::string& why, const std::string& headers = "") {
  return {status, kText, why + "\n", headers};
}

/// The token in "/?token=TOKEN"; empty if none.
std::string_view token_of(const Request& request) {
  constexpr std::string_view start = "/?token=";
  const std::string_view target = request.target;
  return target.starts_with(start) ? target.substr(start.size()) : std::string_view();
}

// The browser keeps the cookie and asks again, so that the token is neither in its history nor in
// its address line. A redirect would count as coming from the page with the link, and browsers send
// no strict cookies with those.
Response welcome(const Site& site) {
  return {200, kHtml,
          "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=/\"><title>Millrace</title>",
          "Set-Cookie: " + site.gate.cookie() + "\r\n"};
}

/// Does what a POST asks for.
Response control(const Site& site, const Request& request) {
  const bool label = request.path() == "/label";
  if (label ? !site.subject.hear_label : !site.subject.controls) {
    return refuse(404, label ? "this run takes no labels: task.labels = \"http\""
                             : "this page has no controls");
  }
  // Pages of other sites can send neither this header nor this type without asking us first.
  if (request.x_millrace != "control" || !request.content_type.starts_with(kJson))
    return refuse(403, "a wish is JSON and has the header \"X-Millrace: control\"");
  const std::string wrong =
      label ? site.subject.hear_label(request.body) : obey(request.body, *site.subject.controls);
  if (!wrong.empty()) return refuse(400, wrong);
  site.publisher.look();
  return {202, kJson, "{\"accepted\": true}", ""};
}

}  // namespace

bool admitted(const Site& site, const Request& request, Response& refusal) {
  const Credentials from = request.credentials();
  if (!site.gate.host_is_ours(from.host)) {
    refusal = refuse(421, "nobody of that name here");
  } else if (site.gate.is_token(token_of(request))) {
    refusal = welcome(site);
  } else if (!site.gate.admits(from)) {
    refusal = refuse(401,
                     "Open this page with ?token=TOKEN, as the run was given it, or send the "
                     "header \"Authorization: Bearer TOKEN\".",
                     "WWW-Authenticate: Bearer\r\n");
  } else if (!Gate::same_origin(from)) {
    refusal = refuse(403, "not for pages of other sites");
  } else {
    return true;
  }
  return false;
}

Response answer(const Site& site, const Request& request) {
  const std::string_view path = request.path();
  const bool post = path == "/control" || path == "/label";
  const Asset* const asset = find_asset(path);
  const bool known = post || asset || path == "/state" || path == "/history" ||
                     path == "/metrics" || path == "/healthz" || path == "/live";
  if (!known) return refuse(404, "there is nothing here");
  if (request.method != (post ? "POST" : "GET"))
    return refuse(405, "not in this way", post ? "Allow: POST\r\n" : "Allow: GET\r\n");
  if (asset) return {200, std::string(asset->type), std::string(asset->text), ""};
  if (post) return control(site, request);
  if (path == "/live") return refuse(426, "a WebSocket only");
  const Trend& trend = site.publisher.trend();
  if (path == "/metrics") {
    return {200, "text/plain; version=0.0.4; charset=utf-8",
            metrics_text(trend.live().now, site.publisher.viewers()), ""};
  }
  if (path == "/healthz") {
    const Health health = health_json(trend.live());
    return {health.ok ? 200 : 503, kJson, health.text, ""};
  }
  if (path == "/history") return {200, kJson, history_json(trend), ""};
  std::uint64_t version;
  return {200, kJson, *site.publisher.state(version), ""};
}

}  // namespace millrace::page
