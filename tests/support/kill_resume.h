// Training processes that are killed, again and again.
#pragma once
#include <cstdint>

namespace tandem {

// Trains a tiny model with a checkpoint after every step, in processes that are killed with SIGKILL: at a
// random file operation (before it, after it, or half way through a write), or at a random moment.  After
// each kill the newest checkpoint must be whole, and no older than before; whenever a run gets to its end its
// adapter must be, byte for byte, that of a run that was never interrupted.  Goes on until `n_kills`
// processes were killed and the run in hand has come to its end.  Failures are reported to GoogleTest.
void kill_and_resume(int n_kills, uint64_t seed);

}  // namespace tandem
