/* constraint_impl.h - the inside of a constraint, for constraint.c and constraint_mask.c. */
#ifndef COMMON_CONSTRAINT_CONSTRAINT_IMPL_H
#define COMMON_CONSTRAINT_CONSTRAINT_IMPL_H
#include "common/constraint/constraint.h"
#include "common/constraint/term.h"
#include "common/constraint/token_set_impl.h"
#include <pthread.h>
#include <stdatomic.h>

/* Bounds of one constraint's memory, in bytes. */
enum { POOL_BYTES = 64 << 20, TABLE_BYTES = 32 << 20, MASK_BYTES = 64 << 20 };
/* Bounds of its work, in steps of some 30 ns: what a compilation, a mask or a token may take.
 * Other answers must not wait for a costly constraint. */
enum { COMPILE_STEPS = 1000000, MASK_STEPS = 500000 };
#define STATE_UNKNOWN UINT32_MAX
#define STATES_DIFFER (UINT32_MAX - 1)

struct mask;
struct constraint {
    atomic_uint refs;
    pthread_mutex_t lock;
    pthread_cond_t compiled;
    bool compiling; /* by a thread that alone may touch the pool */
    struct err why; /* what was ordered could not be compiled: `start` is TERM_NONE */
    struct term_pool *pool;
    term start;
    struct byte_classes classes;
    /* [term] -> [BYTE_CLASSES] the state behind every byte of a class, or STATES_DIFFER, or
     * STATE_UNKNOWN; NULL: never left. And [term] -> [256] that behind each byte, for those that
     * tell bytes of a class apart. */
    uint32_t **by_class, **next;
    struct mask **mask; /* [term]; NULL: never asked for */
    size_t cap, table_bytes, mask_bytes;
    const struct token_set *tokens; /* what the masks are of */
    term *path;                     /* [longest token + 1] */
};

/* Takes the lock, as soon as the constraint is compiled; which term `at` is. */
term constraint_enter(struct constraint *c, constraint_state at);
/* All others with the lock held. */
bool constraint_room(struct constraint *c, term t); /* in both tables; false: out of memory */
/* The state behind a byte, or behind every byte of a class (or STATES_DIFFER): as kept, or found
 * and kept. */
term constraint_step(struct constraint *c, term t, uint8_t byte);
term constraint_step_class(struct constraint *c, term t, uint8_t class_of);
void constraint_drop_masks(struct constraint *c);
#endif
