/* buffers.h - token buffers: named lists of tokens of a connection.
 *
 * A client names a prompt, or a prompt with its answer; later prompts can begin with it. Size and
 * number per connection are bounded: a stream that will fill a buffer reserves its tokens first.
 * Pure. */
#ifndef ROUTER_API_LMTP_BUFFERS_H
#define ROUTER_API_LMTP_BUFFERS_H
#include "common/err.h"
#include "router/api/lmtp/message.h"
#include <stdbool.h>
#include <stdint.h>

enum { BUFFERS_MAX = 64, BUFFERS_TOKENS = 1 << 20 };

struct token_buffer {
    struct token_buffer *next;
    char name[LMTP_NAME_MAX + 1];
    bool filled;
    uint32_t *ids, n;
};

struct buffers { /* zero-initialise */
    struct token_buffer *first;
    uint32_t n;
    uint64_t held, reserved; /* tokens */
};

/* NULL: no filled buffer has this name. Valid until the buffer is filled again or dropped. */
const struct token_buffer *buffers_find(const struct buffers *b, const char *name);
/* Reserves `n` tokens for this name. ERR_VALIDATION: over the limit; ERR_SYSTEM: out of memory. */
int buffers_reserve(struct buffers *b, const char *name, uint32_t n, struct err *e);
/* Releases the reservation and stores `a` followed by `c`, at most `reserved` tokens. Replaces the
 * previous content. Out of memory: nothing is stored. */
void buffers_fill(struct buffers *b, const char *name, uint32_t reserved, const uint32_t *a,
                  uint32_t n_a, const uint32_t *c, uint32_t n_c);
bool buffers_drop(struct buffers *b, const char *name); /* false: no such buffer */
void buffers_free(struct buffers *b);
#endif
