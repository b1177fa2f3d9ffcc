// Read by the sanitizers' run time alone; in other builds nobody calls these.

// GLib keeps what its loading allocates for ever, and names; the HTTP session that a pipeline's
// context holds loses a little when it goes, and when it is cut off while it reads. Only the whole
// call stack tells these apart.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "fast_unwind_on_malloc=0";
}
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:_dl_init\nleak:g_intern_string\nleak:g_value_unset\nleak:libsoup\n";
}

// moodycamel's ConcurrentQueue orders the reuse of its blocks with fences, which GCC's
// ThreadSanitizer does not model: it takes that reuse for a race. Nothing of ours is let off.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:moodycamel::ConcurrentQueue\n";
}
