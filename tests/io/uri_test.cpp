#include "io/source/uri.h"

#include <array>

#include <gtest/gtest.h>

#include "io/network/dial.h"
#include "io/source/source.h"
#include "io/text/nearest_name.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

TEST(Uri, SplitsAtTheScheme) {
  const char* const cases[][3] = {{"rtsp://h/p", "rtsp", "//h/p"},
                                  {"gst:videotestsrc ! identity", "gst", "videotestsrc ! identity"},
                                  {"clip.mp4", "", "clip.mp4"},
                                  {"/a/b c:d.mp4", "", "/a/b c:d.mp4"},
                                  {"2020:clip.mp4", "", "2020:clip.mp4"}};
  for (const auto& [uri, scheme, rest] : cases) {
    EXPECT_EQ(split_uri(uri).scheme, scheme);
    EXPECT_EQ(split_uri(uri).rest, rest);
  }
}

TEST(Uri, AnExistingFileNeedsNoScheme) {
  const TestFolder folder;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  put_bytes("day:one.avi", "x");
  EXPECT_EQ(split_uri("day:one.avi").scheme, "");
  EXPECT_EQ(split_uri("day:two.avi").scheme, "day");
  std::filesystem::current_path(here);
}

TEST(Uri, FilePathsAndPercentDecoding) {
  for (const auto& [uri, path] : {std::pair("file:///a/b%20c.mp4", "/a/b c.mp4"),
                                  {"file://localhost/a.mp4", "/a.mp4"},
                                  {"file:/a.mp4", "/a.mp4"},
                                  {"a%20b.mp4", "a%20b.mp4"}})  // a bare path as it stands
    EXPECT_EQ(file_path(split_uri(uri)), path);
  EXPECT_EQ(percent_decoded("%41%c3%A4%2f"), "A\xc3\xa4/");
  for (const char* as_it_is : {"100%", "%4", "%zz%4g"})
    EXPECT_EQ(percent_decoded(as_it_is), as_it_is);
}

TEST(Uri, NearestName) {
  constexpr std::array<std::string_view, 3> known = {"rtsp", "http", "synth"};
  for (const auto& [typed, name] :
       {std::pair("rtps", "rtsp"), {"htp", "http"}, {"synthetic", "synth"}})
    EXPECT_EQ(nearest_name(typed, known), name);
}

TEST(Redacted, HidesCredentialsAndSecrets) {
  const std::pair<const char*, const char*> cases[] = {
      {"rtsp://user:secret@host:554/x", "rtsp://***@host:554/x"},
      {"http://user@host/", "http://***@host/"},
      {"rtsp://u:p@ss@host/x", "rtsp://***@host/x"},
      {"rtsp://u:a/b?c#d@host/x", "rtsp://***@host/x"},
      {"rtsp://admin:S3cret@Home#99@host/cam", "rtsp://***@host/cam"},
      {"rtsp://u:p@ss?w/o@host:554/x", "rtsp://***@host:554/x"},
      {"rtsp://u:12#34@host/x", "rtsp://***@host/x"},
      {"rtsp://u:12/34@10.0.0.1/x", "rtsp://***@10.0.0.1/x"},
      {"rtsp://u:it's@host/x", "rtsp://***@host/x"},
      {"rtsp://u:a b@host/x", "rtsp://***@host/x"},
      {"http://h/x?usr=me&pwd=a&AuthToken=b&key=c&auth=d&sig=e&loginpas=f&n=1",
       "http://h/x?usr=me&pwd=***&AuthToken=***&key=***&auth=***&sig=***&loginpas=***&n=1"},
      {"http://h/x?key=abc: it cannot be read", "http://h/x?key=***: it cannot be read"},
      {"gst:rtspsrc location=\"rtsp://u:p@h/x\" ! appsink",
       "gst:rtspsrc location=\"rtsp://***@h/x\" ! appsink"},
      {"gst:rtspsrc user-id=me user-pw=secret ! fakesink",
       "gst:rtspsrc user-id=me user-pw=*** ! fakesink"},
      {"gst:x user-pw=\"a b\" ! y", "gst:x user-pw=*** ! y"},
      {"rtsp://a:b@h and http://c:d@i", "rtsp://***@h and http://***@i"},
      {"http://h/x?a=1&token=abc&b=2", "http://h/x?a=1&token=***&b=2"},
      {"http://h/x?PWD=abc#top", "http://h/x?PWD=***#top"},
      {"http://h/x?my_api_key=k", "http://h/x?my_api_key=***"},
      {"gst:rtspsrc user-pw = x ! y", "gst:rtspsrc user-pw = *** ! y"},
      {"gst:rtspsrc user-pw = \"a b\" ! y", "gst:rtspsrc user-pw = *** ! y"}};
  for (const auto& [text, shown] : cases) EXPECT_EQ(redacted(text), shown);
}

TEST(Redacted, LeavesTheRest) {
  std::string many;  // in time linear in its length
  for (int n = 0; n < 20000; ++n) many += "==";
  for (const char* const text :
       {"rtsp://host/x", "rtsp://host:554/x@y", "http://[::1]:80/a", "file:///a@b", "/a/b@c",
        "gst:a ! b", "synth:shapes", "token=", "a=1 tokens=3",
        "must be mqtt://[USER:PASSWORD@]HOST", "rtsp://USER:PASSWORD@0.0.0.0", many.c_str()})
    EXPECT_EQ(redacted(text), text);
}

TEST(Uri, HostsAndPorts) {
  for (const char* const uri : {"http://h", "http://h:1/x", "http://[::1]:65535", "rtsp://u:p@h"})
    EXPECT_EQ(authority_error(split_uri(uri)), "") << uri;
  for (const char* const uri : {"http://", "http://[::1", "http://::1]", "http://h:0",
                                "http://h:65536", "http://h:x", "http://h:1x"})
    EXPECT_NE(authority_error(split_uri(uri)), "") << uri;
  EXPECT_EQ(authority_error(split_uri("rtsp://h:0"), 0), "");
  for (const char* const uri : {"rtsp://u:p#1@h/x", "rtsp://u:p@2#3@h/x", "rtsp://u:p/1@h/x"})
    EXPECT_NE(authority_error(split_uri(uri)).find("%23"), std::string::npos) << uri;
  EXPECT_EQ(authority_error(split_uri("rtsp://u:p@h/x?mail=a@b.org")), "");
}

TEST(Uri, CredentialsAreDecoded) {
  const Authority at = authority(split_uri("rtsp://eve:pass%20word%3A@[::1]:8554/live"));
  EXPECT_EQ(at.user, "eve");
  EXPECT_EQ(at.password, "pass word:");
  EXPECT_EQ(at.host, "::1");
  EXPECT_EQ(authority(split_uri("rtsp://host/x@y")).user, "");
}

TEST(Uri, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.example.org", "", "localhost.evil"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace millrace::io
