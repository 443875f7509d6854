/* state_cells.h - accounting of the cells of recurrent state on this rank: which cells belong to
 * a sequence, and which the router uses. Independent of the model.
 *
 * The router assigns two cells to each request, and stores snapshots in others. Requests without
 * cells get two from the end of the pool, beyond the cells that the router has named. */
#ifndef MODEL_SERVER_ENGINE_STATE_CELLS_H
#define MODEL_SERVER_ENGINE_STATE_CELLS_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CELLS_EACH = 2 }; /* a step reads one and writes the other */

struct state_cells { /* zero-initialise */
    uint32_t n;      /* size of the pool; 0: no recurrent state */
    uint32_t named;  /* cells below this belong to the router */
    bool *taken;     /* [n] by a sequence */
};
/* Replaces the pool; no sequence may have cells. */
int state_cells_resize(struct state_cells *c, uint32_t n, struct err *e);
void state_cells_free(struct state_cells *c);

/* Claims the two cells that a request names. ERR_VALIDATION, without any change: not two cells,
 * outside the pool, or already taken. */
int state_cells_claim(struct state_cells *c, const uint32_t *v, size_t n, uint32_t out[CELLS_EACH],
                      struct err *e);
/* Takes two cells that the router does not use. ERR_VALIDATION: there are none. */
int state_cells_take(struct state_cells *c, uint32_t out[CELLS_EACH], struct err *e);
void state_cells_give(struct state_cells *c, const uint32_t v[CELLS_EACH]);
/* Marks a cell that the router reads or writes itself. ERR_VALIDATION: outside the pool, or it
 * belongs to a sequence. */
int state_cells_name(struct state_cells *c, uint32_t cell, struct err *e);
#endif
