// What viewers cost training.
#pragma once

namespace millrace::page {

/// Works as busily as it can on pictures of `size` pixels a side, with nobody looking on, with one
/// viewer who reads and with 100 who never do, turn about for `seconds` each, and prints what a
/// look at the board cost and how many steps were made.
void bench_viewers(int size, double seconds);

}  // namespace millrace::page
