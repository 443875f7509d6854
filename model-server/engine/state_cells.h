/* state_cells.h - the cells of recurrent state of this rank: which are a sequence's, and which the
 * router has spoken of.
 *
 * The router hands out cells, two for each request, and keeps snapshots in others. Requests that
 * bring none get two from the end of the pool, where the router has never named a cell. Plain
 * accounting: nothing here knows a model. */
#ifndef MODEL_SERVER_ENGINE_STATE_CELLS_H
#define MODEL_SERVER_ENGINE_STATE_CELLS_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CELLS_EACH = 2 }; /* a step reads one and writes the other */

struct state_cells { /* zero-initialise */
    uint32_t n;      /* of the pool; 0: there is no recurrent state */
    uint32_t named;  /* cells below this are the router's */
    bool *taken;     /* [n] by a sequence */
};
/* Another pool, of which no sequence has any. */
int state_cells_resize(struct state_cells *c, uint32_t n, struct err *e);
void state_cells_free(struct state_cells *c);

/* The two that a request names. ERR_VALIDATION, and nothing is taken: they are not two, outside the
 * pool or taken. */
int state_cells_claim(struct state_cells *c, const uint32_t *v, size_t n, uint32_t out[CELLS_EACH],
                      struct err *e);
/* Two that the router does not hand out. ERR_VALIDATION: there are none. */
int state_cells_take(struct state_cells *c, uint32_t out[CELLS_EACH], struct err *e);
void state_cells_give(struct state_cells *c, const uint32_t v[CELLS_EACH]);
/* A cell that the router reads or writes for itself: inside the pool, and no sequence's. */
int state_cells_name(struct state_cells *c, uint32_t cell, struct err *e);
#endif
