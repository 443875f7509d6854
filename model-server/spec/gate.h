/* gate.h - whether a draft head is used, by what it was measured to bring. Pure arithmetic.
 *
 * A head has a price even where it drafts nothing: hidden states are fetched and kept, and those of
 * a head with keys have to pass through it. So decode steps are taken in periods. A period has the
 * head on, off (nothing is fetched), or paused: rows are kept, and no draft is made. For each size
 * of batch the gate learns what a token takes with drafts and without, and uses what takes less.
 *
 *   on      drafts; now and then a period is paused, to measure what steps without drafts take
 *   off     nothing; now and then a period is on
 *
 * A pause keeps the rows so that a head with keys loses no context by a measurement. What lost is
 * tried again after 4 periods, then after twice as many each time that it loses, at most after 64.
 * A period that is on is over as soon as GATE_IDLE steps of it made no draft: then the costs that
 * warm-up measured say that none is worth its time, and nothing can be gained.
 *
 * With several ranks, all call alike, and agree on gate_period_ns() before gate_decide(). */
#ifndef MODEL_SERVER_SPEC_GATE_H
#define MODEL_SERVER_SPEC_GATE_H
#include <stdbool.h>
#include <stdint.h>

enum gate_mode { GATE_ON, GATE_PAUSED, GATE_OFF };

enum {
    GATE_STEPS = 16, /* of a period that are measured */
    GATE_SETTLE = 2, /* steps before them, after a change: the first row makes no draft yet */
    GATE_IDLE = 6,
    GATE_SIZES = 12, /* batches of 1, 2, up to 4, up to 8, ... sequences */
    GATE_MOST_NS = 1 << 29
};

struct gate_size {        /* batches of one size */
    double with, without; /* ns a token took; 0: not known */
    bool in_use;          /* of the two, the head is faster */
    uint32_t patience;    /* periods from a lost trial to the next */
    uint32_t rest;        /* of these, still to come */
    /* the period at hand */
    enum gate_mode mode;
    uint32_t steps, idle;
    uint64_t tokens;
    int64_t ns;
};

struct gate {
    struct gate_size size[GATE_SIZES];
    uint32_t at; /* that of the next step */
};

struct gate gate_new(void); /* on */
static inline enum gate_mode gate_mode(const struct gate *g) { return g->size[g->at].mode; }

/* The next step is one of `seqs` sequences. */
void gate_enter(struct gate *g, uint32_t seqs);

/* A decode step brought so many tokens in so many ns; `drafted`: the head made some drafts. True:
 * the period is over, and gate_decide() is to be called. */
bool gate_note(struct gate *g, uint32_t tokens, int64_t ns, bool drafted);

/* What a token took in the period that is over: 1 .. GATE_MOST_NS. */
uint32_t gate_period_ns(const struct gate *g);

/* The mode of the next period, where the last one took that long. */
void gate_decide(struct gate *g, uint32_t ns);
#endif
