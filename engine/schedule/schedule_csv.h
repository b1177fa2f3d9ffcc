#pragma once

#include <string>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

bool is_schedule_file(const std::string& name);

/// Reads one minibatch of a flushing schedule in the format of torch.distributed.pipelining: a row
/// per worker, cells as "2F0" (stage 2 forwards sample 0), B, or I and W for a backward's two
/// parts; empty cells are bubbles. Communication cells of PyTorch's "compute_comms" form (SEND_F,
/// RECV_B, REDUCE_GRAD, ...) are implied and skipped; "(0F1;3B0)OVERLAP_F_B" means its parts in
/// order. Every stage updates after each minibatch. Accepts PyTorch 2.11's 1F1B, whose last rank
/// counts forwards from 1. Throws std::invalid_argument, "LINE:COLUMN: what is wrong". Still
/// verify() it.
Schedule parse_schedule_csv(const std::string& text);

/// parse_schedule_csv() of a file; errors begin with its name.
Schedule read_schedule_csv(const std::string& file);

}  // namespace millrace::engine
