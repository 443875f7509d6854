/* pace.h - a linear model of step time, fitted to recent steps: a + b * decoding rows + c * prompt
 * tokens, in seconds. It drives step-time control.
 *
 * Pure arithmetic over ring buffers of recent steps. Every estimate is a median, so one disturbed
 * step in three (another process, a page fault, a slow rank) does not move it. */
#ifndef ROUTER_SCHEDULER_PACE_H
#define ROUTER_SCHEDULER_PACE_H
#include <stdbool.h>
#include <stdint.h>

enum { PACE_DECODES = 24, PACE_PROMPTS = 9, PACE_HANGS = 20, PACE_HANGS_LEAST = 2 };

struct pace { /* zero-initialise */
    struct {
        double rows, seconds;
    } decode[PACE_DECODES]; /* ring of steps without prompts */
    /* ring: seconds per prompt token, above the time of the decoding rows */
    double prompt[PACE_PROMPTS];
    uint32_t n_decode, n_prompt;
    double a, b, c; /* seconds; 0: unknown */
};

/* Throughput of image encoding, over recent steps. */
struct encode_pace { /* zero-initialise */
    double rate;     /* operations per second; 0: unknown */
};
/* `done` operations of image encoding took `seconds`. */
void encode_note(struct encode_pace *p, uint64_t done, double seconds);
/* Operations that a step with `rows` decoding requests may spend on images. The step then takes
 * less than twice its time without images. Where nothing decodes, the bound is `idle` seconds (0:
 * none), so that new requests do not wait longer. Returns 0: no limit; a small budget while the
 * rate is unknown. */
uint64_t encode_budget(const struct encode_pace *e, const struct pace *p, uint32_t rows,
                       double idle);

/* Records a step with `rows` decoding requests and `tokens` prompt tokens. */
void pace_note(struct pace *p, uint32_t rows, uint32_t tokens, double seconds);
/* Enough steps with prompts were seen for a reliable estimate of c. */
bool pace_knows_prompts(const struct pace *p);
/* Seconds that a step without prompts takes; 0: unknown. */
double pace_of(const struct pace *p, uint32_t rows);
/* Seconds after which a step with this work counts as hung: PACE_HANGS times its expected duration,
 * at least PACE_HANGS_LEAST. 0: unknown. */
double pace_patience(const struct pace *p, uint32_t rows, uint32_t tokens);
/* Prompt tokens that take as long as an empty step, which is the cost of one more step; 0:
 * unknown. */
uint32_t pace_step(const struct pace *p);
/* Prompt tokens a step may compute, so that `rows` requests get their next token within `target`
 * seconds. If twice the time of a step without prompts is longer, that is the target. Prompts
 * always get a share. At most `most`; all of it without rows or without a target (0). */
uint32_t pace_budget(const struct pace *p, uint32_t rows, double target, uint32_t most);
/* Prompt tokens with which a step of `rows` requests takes at most `factor` times as long as
 * without. Some room is left for the variation of steps. Prompts always get a share. At most
 * `most`; all of it without rows, or with a factor of at most 1. */
uint32_t pace_budget_factor(const struct pace *p, uint32_t rows, double factor, uint32_t most);
#endif
