/* constraint_impl.h - private to constraint.c and constraint_mask.c: the layout of a constraint. */
#ifndef COMMON_CONSTRAINT_CONSTRAINT_IMPL_H
#define COMMON_CONSTRAINT_CONSTRAINT_IMPL_H
#include "common/constraint/constraint.h"
#include "common/constraint/term.h"
#include "common/constraint/token_set_impl.h"
#include <pthread.h>
#include <stdatomic.h>

/* Memory limits of one constraint, in bytes. */
enum { POOL_BYTES = 64 << 20, TABLE_BYTES = 32 << 20, MASK_BYTES = 64 << 20 };
/* Work limits of a compilation and of a mask or token, in steps of about 30 ns, so that a costly
 * constraint cannot delay other requests. */
enum { COMPILE_STEPS = 1000000, MASK_STEPS = 500000 };
/* More for each byte of a long text, such as thousands of `enum` values, up to a length. */
enum { COMPILE_STEPS_BYTE = 10, COMPILE_LONG = 1 << 20 };
#define STATE_UNKNOWN UINT32_MAX
#define STATES_DIFFER (UINT32_MAX - 1)

struct mask;
struct constraint {
    atomic_uint refs;
    pthread_mutex_t lock;
    pthread_cond_t compiled;
    bool compiling; /* by a thread that has exclusive access to the pool */
    bool begun;     /* see constraint_begun() */
    struct err why; /* error of a background compilation: `start` is TERM_NONE */
    struct term_pool *pool;
    term start;
    struct byte_classes classes;
    /* by_class: [term] -> [BYTE_CLASSES] the next state for every byte of a class, or
     * STATES_DIFFER, or STATE_UNKNOWN; NULL: none yet. next: [term] -> [256] the next state per
     * byte, for states that distinguish bytes of a class. */
    uint32_t **by_class, **next;
    struct mask **mask; /* [term]; NULL: not computed */
    size_t cap, table_bytes, mask_bytes;
    const struct token_set *tokens; /* vocabulary of the masks */
    term *path;                     /* [longest token + 1] */
};

/* Waits for the compilation and takes the lock. Returns the term of `at`. */
term constraint_enter(struct constraint *c, constraint_state at);
/* All others require the lock. */
bool constraint_room(struct constraint *c, term t); /* grows all tables; false: out of memory */
/* The next state for a byte, or for every byte of a class (or STATES_DIFFER): cached, or computed
 * and cached. */
term constraint_step(struct constraint *c, term t, uint8_t byte);
term constraint_step_class(struct constraint *c, term t, uint8_t class_of);
void constraint_drop_masks(struct constraint *c);
#endif
