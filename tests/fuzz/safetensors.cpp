#include "stages/safetensors.h"
#include "tests/fuzz/target.h"
#include "tools/app/checkpoint_files.h"

/// Weights and checkpoints.
MILLRACE_FUZZ(safetensors) {
  try {
    (void)millrace::app::read_checked(millrace::fuzz::as_file(text));
  } catch (const millrace::stages::WeightsError&) {
  }
}
