/* int_neon.inc.h - the operations that int.inc.h needs, with signed products of quads.
 * There are 32 registers: the sums use up to 24. */
#include "model-server/backend/cpu/kernels/dot_neon.inc.h"

enum { ROWS8_MAX = 6 };
#define PANELS8(rows) ((rows) == 1 ? 3 : (rows) == 2 ? 2 : 1)

/* Stored as w + 128. Signed weights need no correction. */
INLINE i16 dot8_weights(i16 w) { return i_xor(w, i_set(0x80808080)); }
INLINE i16 dot8_start(int32_t correction) { return (void)correction, i_set(0); }
INLINE i16 dot8(i16 acc, i16 w, i16 x) { return i_dot(acc, w, x); }

#include "model-server/backend/cpu/kernels/int.inc.h"
