/* pace.h - how long a step takes, learnt from the steps there were: a + b * rows that decode
 * + c * prompt tokens.
 *
 * Pure arithmetic over the last steps of each kind. Every estimate is a median, so that one step in
 * three may be disturbed (another process, a page fault, a slow rank) without moving it; forgetting
 * is what the ring drops. */
#ifndef ROUTER_SCHEDULER_PACE_H
#define ROUTER_SCHEDULER_PACE_H
#include <stdint.h>

enum { PACE_DECODES = 24, PACE_PROMPTS = 9 };

struct pace { /* zero-initialise */
    struct {
        double rows, seconds;
    } decode[PACE_DECODES];      /* steps without prompts, a ring */
    double prompt[PACE_PROMPTS]; /* seconds a prompt token added, a ring */
    uint32_t n_decode, n_prompt;
    double a, b, c; /* seconds; 0: not known */
};

/* What work on pictures takes: operations a second, over the last steps. */
struct encode_pace { /* zero-initialise */
    double rate;     /* 0: not known */
};
void encode_note(struct encode_pace *p, uint64_t done, double seconds);
/* Operations that a step with `rows` decoding requests may spend on pictures, so that it takes less
 * than twice as long as without; where nothing decodes, so that those who arrive need not wait for
 * longer than `idle` seconds (0: however long). 0: no limit. Nothing known yet: hardly any. */
uint64_t encode_budget(const struct encode_pace *e, const struct pace *p, uint32_t rows,
                       double idle);

/* A step with `rows` decoding requests and `tokens` of prompts took that long. */
void pace_note(struct pace *p, uint32_t rows, uint32_t tokens, double seconds);
/* What a step without prompts takes; 0: not known. */
double pace_of(const struct pace *p, uint32_t rows);
/* Prompt tokens that take as long as a step with nothing in it, which is what one step more costs;
 * 0: not known. */
uint32_t pace_step(const struct pace *p);
/* How many prompt tokens a step may take, so that `rows` requests get their next token within
 * `target` seconds - or twice what they need without, if that is more: prompts always get a share.
 * At most `most`; without streams, or without a target (0), all of that. */
uint32_t pace_budget(const struct pace *p, uint32_t rows, double target, uint32_t most);
#endif
