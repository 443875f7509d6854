/* buffers.h - token buffers: lists of tokens that a connection has given names.
 *
 * A prompt that was sent once, or a prompt and what a stream made of it, is named; later prompts
 * begin with it. What one connection may keep is bounded: a stream that will fill a buffer reserves
 * its room first. Pure. */
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

/* NULL: none of that name was filled. Valid until the buffer is filled again or dropped. */
const struct token_buffer *buffers_find(const struct buffers *b, const char *name);
/* Room for `n` tokens under that name. ERR_VALIDATION: it is not there; ERR_SYSTEM: memory. */
int buffers_reserve(struct buffers *b, const char *name, uint32_t n, struct err *e);
/* Gives back the room that was reserved and keeps `a` and `c`, one behind the other: at most so
 * many tokens. What the name stood for is forgotten. Out of memory: nothing is kept. */
void buffers_fill(struct buffers *b, const char *name, uint32_t reserved, const uint32_t *a,
                  uint32_t n_a, const uint32_t *c, uint32_t n_c);
bool buffers_drop(struct buffers *b, const char *name); /* false: there was none */
void buffers_free(struct buffers *b);
#endif
