#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

#include "io/queue/targets.h"
#include "io/source/picture_headers.h"
#include "io/source/source.h"
#include "io/source/source_images.h"
#include "tests/complaint.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using Images = FolderTest;
using GStreamer = FolderTest;
using Masks = FolderTest;
using PictureSize = FolderTest;

// A PNG whose red value in the corner is `mark`.
void put_picture(const std::string& path, int mark, int width = 8, int height = 6) {
  cv::Mat picture(height, width, CV_8UC3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      picture.at<cv::Vec3b>(y, x) = cv::Vec3b(x * 10, y * 10, mark + x + y);
    }
  }
  ASSERT_TRUE(cv::imwrite(path, picture));
}

// The marks of a stream's pictures; -1 for a corrupt one.
std::vector<int> marks(Source& source) {
  std::vector<int> seen;
  Frame frame;
  for (;;) {
    const ReadStatus status = source.read(frame, std::chrono::milliseconds(0));
    if (status == ReadStatus::end) return seen;
    seen.push_back(status == ReadStatus::corrupt ? -1 : frame.pixels.at(0));
  }
}

std::vector<int> marks(const std::string& uri) {
  return marks(*open_source({.uri = uri}));
}

/// What a source said, after it was read.
std::vector<std::string> notes(Source& source) {
  marks(source);
  return source.health()->take_notes();
}

TEST_F(Images, NumbersStartAtTheLowestAndAGapIsNamedAndCounted) {
  for (const int first : {0, 1, 37}) {
    const TestFolder folder;
    for (const int n : {first, first + 1, first + 4, first + 5}) {
      put_picture(folder / ("img" + std::to_string(n) + ".png"), n);
    }
    const std::string uri = "images:" + folder / "img%d.png";
    EXPECT_EQ(marks(uri), (std::vector<int>{first, first + 1, -1, -1, first + 4, first + 5}));
    EXPECT_EQ(notes(*open_source({.uri = uri})),
              std::vector<std::string>{folder / ("img" + std::to_string(first + 2) + ".png") +
                                       " is missing; 2 files follow, from img" +
                                       std::to_string(first + 4) + ".png on"});
    put_picture(folder / "img100000.png", 1);
    const auto said = notes(*open_source({.uri = uri}));
    ASSERT_EQ(said.size(), 2u);
    EXPECT_NE(said[1].find("1 file follows, img100000.png, and will not be read"), said[1].npos);
  }
}

TEST_F(Images, APatternSaysHowManyDigitsAndAFolderAndAGlobAreSortedByName) {
  put_picture(folder / "7.png", 7);
  put_picture(folder / "0009.png", 9);
  put_picture(folder / "0010.png", 10);
  EXPECT_EQ(marks("images:" + folder / "%04d.png"), (std::vector<int>{9, 10}));
  const TestFolder folder;
  put_picture(folder / "b.png", 2);
  put_picture(folder / "a.png", 1);
  put_picture(folder / "c.bmp", 3);
  put_bytes(folder / "notes.txt", "not a picture");
  EXPECT_EQ(marks("images:" + folder.path()), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(marks("images:" + folder / "*.png"), (std::vector<int>{1, 2}));
  EXPECT_EQ(marks("images:" + folder / "c.bmp"), (std::vector<int>{3}));
}

TEST_F(Images, EachRefusedPictureIsNamed) {
  put_picture(folder / "a.jpg", 1, 160, 96);
  const std::string whole = bytes_of(folder / "a.jpg");
  put_bytes(folder / "b.jpg", whole.substr(0, whole.size() / 2));
  put_bytes(folder / "c.tga", "this is no Targa");
  put_bytes(folder / "d.png", "this is no PNG");
  const auto said = notes(*open_source({.uri = "images:" + folder.path()}));
  ASSERT_EQ(said.size(), 3u);
  EXPECT_EQ(said[0], folder / "b.jpg: ends before the picture does");
  EXPECT_TRUE(said[1].starts_with(folder / "c.tga: FFmpeg cannot ")) << said[1];
  EXPECT_TRUE(said[2].starts_with(folder / "d.png: FFmpeg cannot ")) << said[2];
}

TEST_F(Images, AHeaderMayBeLargerThanAMebibyte) {
  put_picture(folder / "a.jpg", 1, 160, 96);
  std::string bytes = bytes_of(folder / "a.jpg");
  for (int n = 0; n < 21; ++n) bytes.insert(2, "\xff\xe1\xff\xff" + std::string(0xfffd, 'x'));
  put_bytes(folder / "b.jpg", bytes);
  ASSERT_TRUE(picture_size(folder / "b.jpg"));
  EXPECT_EQ(marks("images:" + folder.path()), marks("images:" + folder / "?.jpg"));
  const auto source = open_source({.uri = "images:" + folder.path()});
  EXPECT_EQ(notes(*source), std::vector<std::string>{});
}

TEST_F(Images, FfmpegReadsWhatOpenCvDoesNotWithinTheBound) {
  const std::string command =
      "ffmpeg -v error -f lavfi -i color=c=0x402080:size=90x61 -frames:v 1 ";
  for (const std::string name : {"a.tga", "a.pam", "a.jp2", "a.qoi", "a.pcx"}) {
    ASSERT_EQ(std::system((command + folder / name).c_str()), 0);
    SourceOptions options{.uri = "images:" + folder / name};
    Frame frame;
    ASSERT_EQ(open_source(options)->read(frame, {}), ReadStatus::frame) << name;
    EXPECT_NEAR(frame.pixels.at(0), 0x40, 2) << name;
    EXPECT_NEAR(frame.pixels.at(2), 0x80, 2) << name;
    options.max_pixels = 1000;
    EXPECT_NE(open_error(options), "") << name;
  }
}

TEST_F(Images, HiddenFilesAreNoPicturesNorHiddenFoldersOrThoseBesidePicturesClasses) {
  for (const std::string name : {"cat", ".ipynb_checkpoints"}) {
    std::filesystem::create_directory(folder / name);
    put_picture(folder / (name + "/0.png"), 5);
  }
  put_bytes(folder / "cat/._0.png", "a Mac's notes");
  put_bytes(folder / "._0.png", "a Mac's notes");
  const auto source = open_source({.uri = "images:" + folder.path()});
  EXPECT_EQ(source->info().classes, 1);
  EXPECT_EQ(marks(*source), std::vector<int>{5});
  put_picture(folder / "0.png", 1);
  const auto pictures = open_source({.uri = "images:" + folder.path()});
  EXPECT_EQ(pictures->info().classes, 0);
  EXPECT_EQ(marks(*pictures), std::vector<int>{1});
}

TEST_F(Images, SizesMayChange) {
  put_picture(folder / "0.png", 0, 8, 6);
  put_picture(folder / "1.png", 1, 4, 2);
  const std::vector<Frame> frames = read_uri("images:" + folder / "%d.png").frames;
  EXPECT_EQ(frames.at(0).pixels.size(), 8u * 6u * 3u);
  EXPECT_EQ(frames.at(1).width, 4);
  EXPECT_EQ(frames[1].pixels.size(), 4u * 2u * 3u);
  EXPECT_EQ(frames[1].pts, std::chrono::milliseconds(40));
}

TEST_F(Images, NothingToReadAndAPatternWithoutOneWholeNumberAreErrors) {
  const std::string here = folder.path();
  for (const auto& [path, part] : std::vector<std::pair<std::string, std::string>>{
           {here, "no pictures found"},
           {here + "/%05d.png", "no pictures found"},
           {here + "/*.png", "no pictures found"},
           {here + "/missing", "no pictures found"},
           {"", "names no folder"},
           {"/x/%s.png", "integer placeholder"},
           {"/x/%n", "integer placeholder"},
           {"/x/%", "integer placeholder"},
           {"/x/%d%d.png", "more than one number"},
           {"/x%d/a.png", "not in a folder's"},
           {"/x/%%.png", "no number"},
           {"/x/%00000000000d.png", "too many digits"}})
    expect_refused("images:" + path, part);
  put_bytes(folder / "0.png", "rubbish");
  expect_refused("images:" + folder / "%d.png", "no picture can be decoded");
  EXPECT_EQ(parse_numbered("d/a%05db.png").path(42), "d/a00042b.png");
  EXPECT_EQ(parse_numbered("d/%3i.png").path(7), "d/  7.png");
  EXPECT_EQ(parse_numbered("100%%_%u.png").path(1234), "./100%_1234.png");
  EXPECT_EQ(parse_numbered("%02d").path(123), "./123");
}

/// Labels and marks in the order in which they come.
std::vector<std::pair<int, int>> labelled(const std::string& folder, std::uint64_t seed) {
  const auto source = open_source({.uri = "images:" + folder, .seed = seed});
  EXPECT_EQ(source->info().classes, 2);
  std::vector<std::pair<int, int>> seen;
  for (const Frame& frame : read_all(*source).frames)
    seen.emplace_back(frame.label, frame.pixels.at(0));
  return seen;
}

TEST_F(Images, FoldersAreClassesAndTheirPicturesComeShuffledBySeed) {
  for (const std::string name : {"dog", "cat", "empty"})
    std::filesystem::create_directory(folder / name);
  for (int n = 0; n < 10; ++n) {
    put_picture(folder / ("cat/" + std::to_string(n) + ".png"), n);
    put_picture(folder / ("dog/" + std::to_string(n) + ".png"), 100 + n);
  }
  std::vector<std::pair<int, int>> seen = labelled(folder.path(), 0);
  EXPECT_EQ(seen, labelled(folder.path(), 0));
  EXPECT_NE(seen, labelled(folder.path(), 1));
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end())) << "one class after another";
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), 20u);
  for (int n = 0; n < 20; ++n) EXPECT_EQ(seen[n], std::pair(n / 10, n / 10 * 100 + n % 10));
  SourceOptions options{.uri = "images:" + folder.path(), .classes = {"dog", "bird", "cat"}};
  const auto named = open_source(options);
  EXPECT_EQ(named->info().classes, 3);
  for (const Frame& frame : read_all(*named).frames)
    EXPECT_EQ(frame.label, frame.pixels.at(0) < 100 ? 2 : 0);
  options.classes = {"dog", "rat"};
  EXPECT_NE(
      open_error(options).find("the folder \"cat\" is none of the classes; the nearest is \"rat\""),
      std::string::npos);
}

TEST_F(PictureSize, IsReadFromEveryKindOfHeader) {
  for (const std::string ending : {".png", ".jpg", ".bmp", ".tif", ".webp", ".ppm"}) {
    put_picture(folder / ("p" + ending), 1, 90, 61);
    const auto size = picture_size(folder / ("p" + ending));
    ASSERT_TRUE(size) << ending;
    EXPECT_EQ(size->width, 90) << ending;
    EXPECT_EQ(size->height, 61) << ending;
  }
  put_bytes(folder / "text", "II* or not");
  put_bytes(folder / "short", "\x89PNG");
  put_bytes(folder / "empty", "");
  for (const char* name : {"text", "short", "empty", "none"})
    EXPECT_FALSE(picture_size(folder / name)) << name;
}

TEST(JpegHeaders, SizesAreFoundHoweverTheStreamIsCut) {
  std::string stream;
  std::vector<std::uint8_t> picture;
  for (const int side : {40, 70}) {
    cv::imencode(".jpg", cv::Mat(side, 2 * side, CV_8UC3, cv::Scalar(20, 200, 60)), picture);
    // A thumbnail's header within a segment is not the picture's.
    const std::uint8_t segment[] = {0xff, 0xe1, 0,    12,   0xff, 0xc0, 0,
                                    8,    8,    0xff, 0xff, 0xff, 0xff, 0};
    picture.insert(picture.begin() + 2, std::begin(segment), std::end(segment));
    stream.append(picture.begin(), picture.end());
  }
  for (const std::size_t part : {std::size_t(1), std::size_t(7), std::size_t(64), stream.size()}) {
    JpegHeaders headers;
    std::vector<std::int64_t> heights;
    for (std::size_t at = 0; at < stream.size(); at += part) {
      const auto size = headers.read(std::string_view(stream).substr(at, part));
      if (!size) continue;
      EXPECT_EQ(size->width, 2 * size->height);
      heights.push_back(size->height);
    }
    EXPECT_EQ(heights, part == stream.size() ? std::vector<std::int64_t>{70}
                                             : (std::vector<std::int64_t>{40, 70}));
  }
}

TEST_F(Images, APhotographIsTurnedWithoutTheScheme) {
  put_picture(folder / "a.jpg", 1, 160, 96);
  const std::string bytes = bytes_of(folder / "a.jpg");
  const std::string exif(
      "\xff\xe1\0\x22"
      "Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
      36);
  put_bytes(folder / "a.jpg", bytes.substr(0, 2) + exif + bytes.substr(2));
  EXPECT_EQ(open_source({.uri = folder / "a.jpg"})->info().width, 96);
}

TEST_F(GStreamer, AFileOfTooManyPixelsIsRefusedBeforeItIsDecoded) {
  put_picture(folder / "p.png", 1, 90, 61);
  EXPECT_NE(open_error(SourceOptions{.uri = folder / "p.png", .max_pixels = 90 * 61 - 1})
                .find("a picture of 90x61 has more pixels than source.max_pixels = 5489 allows"),
            std::string::npos);
  EXPECT_EQ(open_error(SourceOptions{.uri = folder / "p.png", .max_pixels = 90 * 61}), "");
}

TEST(CodedSize, IsReadFromTheFirstBytes) {
  using namespace std::string_view_literals;
  EXPECT_EQ(coded_size("video/x-vp8", "\0\0\0\x9d\1\x2a\x80\2\xe0\1"sv)->width, 640);
  EXPECT_FALSE(coded_size("video/x-vp8", "\1\0\0\x9d\1\x2a\x80\2\xe0\1"sv)) << "no key frame";
  EXPECT_EQ(coded_size("video/x-theora", "\x80theora\3\2\1\xff\xff\xff\xff"sv)->height, 16 * 65535);
  EXPECT_EQ(
      coded_size("image/png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x36\xb0\0\0\x36\xb1"sv)->height,
      14001);
  EXPECT_FALSE(coded_size("video/x-h264", "\0\0\0\1"sv)) << "its parser says it in caps";
}

TEST_F(Images, APictureThatWouldFillTheMemoryIsNotDecoded) {
  std::string header("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
  header += std::string("\0\0\x36\xb0\0\0\x36\xb0\x08\2\0\0\0", 13);  // 14000 x 14000
  put_bytes(folder / "0.png", header + std::string(100, 0));
  expect_refused("images:" + folder.path(), "14000x14000");
  put_picture(folder / "1.png", 7);
  EXPECT_EQ(marks("images:" + folder.path()), (std::vector<int>{-1, 7}));
}

TEST_F(Masks, OfOneBitAreClassesZeroAndOne) {
  cv::Mat mask = cv::Mat::zeros(2, 3, CV_8UC1);
  mask.at<std::uint8_t>(1, 2) = 255;
  ASSERT_TRUE(cv::imwrite(folder / "0.png", mask, {cv::IMWRITE_PNG_BILEVEL, 1}));
  put_bytes(folder / "1.pbm", "P1 3 2 1 1 1 1 1 0");  // 1 is black
  const Teller teller = mask_teller(folder.path(), 2, {.width = 3, .height = 2}, 3, 2);
  for (int n = 0; n < 2; ++n) {
    Frame frame;
    frame.reshape(3, 2, 3);
    teller.tell(frame, n, {});
    EXPECT_EQ(frame.target, std::vector<float>({1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1})) << n;
  }
  put_bytes(folder / "0.png", "no picture");
  EXPECT_NE(complaint<MaskError>([&] { require_masks(folder.path()); }), "");
}

}  // namespace
}  // namespace millrace::io
