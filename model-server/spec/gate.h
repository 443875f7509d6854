/* gate.h - decides from measured step times whether a draft head is used. Pure arithmetic.
 *
 * A head costs time even if it drafts nothing: its hidden states are fetched and kept, and a head
 * with keys has to process them. Decode steps are therefore grouped into periods. In a period the
 * head is on, paused (rows are kept, no draft is made) or off (no row is fetched). For each batch
 * size the gate measures the time per token with and without drafts and selects the smaller one.
 *
 *   on      drafts; occasionally a period is paused, to measure steps without drafts
 *   off     no drafts; occasionally a period is on
 *
 * A pause keeps the rows, so that a head with keys loses no context by a measurement. The losing
 * mode is tried again after 4 periods, then after twice as many after each loss, at most 64. A
 * period with the head on ends after GATE_IDLE steps without a draft: then no draft pays by the
 * costs that warm-up measured.
 *
 * With several ranks, all make the same calls and agree on gate_period_ns() before gate_decide().
 */
#ifndef MODEL_SERVER_SPEC_GATE_H
#define MODEL_SERVER_SPEC_GATE_H
#include <stdbool.h>
#include <stdint.h>

enum gate_mode { GATE_ON, GATE_PAUSED, GATE_OFF };

enum {
    GATE_STEPS = 16, /* measured steps of a period */
    GATE_SETTLE = 2, /* steps before them after a change of mode: the first row drafts nothing */
    GATE_IDLE = 6,   /* steps without a draft that end a period */
    GATE_SIZES = 12, /* batches of 1, 2, up to 4, up to 8, ... sequences */
    GATE_MOST_NS = 1 << 29
};

struct gate_size {        /* for one class of batch sizes */
    double with, without; /* ns per token; 0: not measured */
    bool in_use;          /* decoding with the head is faster */
    uint32_t patience;    /* periods from a lost trial to the next one */
    uint32_t rest;        /* remaining ones of these */
    /* the current period */
    enum gate_mode mode;
    uint32_t steps, idle;
    uint64_t tokens;
    int64_t ns;
};

struct gate {
    struct gate_size size[GATE_SIZES];
    uint32_t at; /* index into `size` for the next step */
};

struct gate gate_new(void); /* starts with the head on */
/* Mode of the next step. */
static inline enum gate_mode gate_mode(const struct gate *g) { return g->size[g->at].mode; }

/* Sets the batch size of the next step. */
void gate_enter(struct gate *g, uint32_t seqs);

/* Records a decode step: its tokens, its time, and whether the head made a draft. True: the period
 * is over; the caller calls gate_decide() next. */
bool gate_note(struct gate *g, uint32_t tokens, int64_t ns, bool drafted);

/* Time per token in the finished period, in 1 .. GATE_MOST_NS ns. */
uint32_t gate_period_ns(const struct gate *g);

/* Selects the mode of the next period. `ns`: gate_period_ns(), agreed among the ranks. */
void gate_decide(struct gate *g, uint32_t ns);
#endif
