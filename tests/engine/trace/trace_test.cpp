#include "engine/trace/trace.h"

#include <gtest/gtest.h>

namespace millrace::engine {
namespace {

TEST(Trace, IsTheTraceEventFormat) {
  const std::vector<Span> spans = {
      {0, {.op = Op::forward, .stage = 0, .sample = 3, .gradient = 3, .version = 2}, 1'000, 3'500},
      {1,
       {.op = Op::backward, .stage = 1, .sample = 4, .gradient = 2},
       5'000'000'000'000'007,
       5'000'000'000'000'010}};
  const std::string expected = R"json({"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","pid":1,"args":{"name":"partime"}},
{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"cpu:0"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":0,"args":{"sort_index":0}},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"worker 1"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":1,"args":{"sort_index":1}},
{"name":"F","cat":"forward","ph":"X","pid":1,"tid":0,"ts":1.000,"dur":2.500,"args":{"stage":0,"frame":3,"version":2}},
{"name":"B","cat":"backward","ph":"X","pid":1,"tid":1,"ts":5000000000000.007,"dur":0.003,"args":{"stage":1,"frame":4,"gradient":2}},
{"name":"frames waiting","ph":"C","pid":1,"ts":2.000,"args":{"value":7}},
{"name":"frames dropped","ph":"C","pid":1,"ts":2.000,"args":{"value":5}},
{"name":"latency, ms","ph":"C","pid":1,"ts":2.000,"args":{"value":1.250}}
]}
)json";
  const std::vector<Counts> counts = {
      {.at_ns = 2'000, .waiting = 7, .dropped = 5, .latency_ms = 1.25}};
  EXPECT_EQ(trace_json("partime", {"cpu:0"}, spans, counts), expected);
}

TEST(Trace, OfNothingIsStillATrace) {
  const std::string expected = R"({"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","pid":1,"args":{"name":""}}
]}
)";
  EXPECT_EQ(trace_json("", {}, {}), expected);
}

TEST(Trace, EscapesWhateverANameHolds) {
  const std::string trace = trace_json("a\"b\\c\n \xe2\x82\xac \xff", {}, {});
  EXPECT_NE(trace.find("\"a\\\"b\\\\c\\n \xe2\x82\xac \xef\xbf\xbd\""), std::string::npos) << trace;
}

TEST(Trace, NegativeTimesKeepTheirSign) {
  const std::vector<Span> spans = {{0, {}, -1'500, -1'400}};
  EXPECT_NE(trace_json("", {}, spans).find("\"ts\":-1.500,\"dur\":0.100"), std::string::npos);
}

}  // namespace
}  // namespace millrace::engine
