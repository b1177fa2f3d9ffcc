// Called by the sanitizers' run time only.

// GLib never frees its names and what it allocates while it is loaded. The HTTP session of a
// pipeline leaks a little when it is closed, or cut off while reading. Matching these needs whole
// call stacks.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "fast_unwind_on_malloc=0";
}
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:_dl_init\nleak:g_intern_string\nleak:g_value_unset\nleak:libsoup\n";
}

// moodycamel's ConcurrentQueue orders the reuse of its blocks with fences, which GCC's
// ThreadSanitizer does not model and takes for a race. Our own code has no suppressions.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:moodycamel::ConcurrentQueue\n";
}
