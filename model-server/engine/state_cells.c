#include "model-server/engine/state_cells.h"
#include <assert.h>
#include <stdlib.h>

int state_cells_resize(struct state_cells *c, uint32_t n, struct err *e)
{
    bool *taken = n ? calloc(n, sizeof(*taken)) : NULL;
    if (n && !taken)
        return err_nomem(e);
    free(c->taken);
    *c = (struct state_cells){.n = n, .taken = taken};
    return 0;
}

void state_cells_free(struct state_cells *c)
{
    free(c->taken);
    *c = (struct state_cells){0};
}

static int check(const struct state_cells *c, uint32_t cell, struct err *e)
{
    if (cell >= c->n)
        return err_set(e, ERR_VALIDATION, "state cell %u: there are %u", cell, c->n);
    if (c->taken[cell])
        return err_set(e, ERR_VALIDATION, "state cell %u belongs to a request", cell);
    return 0;
}

int state_cells_name(struct state_cells *c, uint32_t cell, struct err *e)
{
    if (check(c, cell, e))
        return -1;
    c->named = cell < c->named ? c->named : cell + 1;
    return 0;
}

int state_cells_claim(struct state_cells *c, const uint32_t *v, size_t n, uint32_t out[CELLS_EACH],
                      struct err *e)
{
    if (n != CELLS_EACH || v[0] == v[1])
        return err_set(e, ERR_VALIDATION, "%zu state cells: a request has two", n);
    if (check(c, v[0], e) || check(c, v[1], e) || state_cells_name(c, v[0], e) ||
        state_cells_name(c, v[1], e))
        return -1;
    for (int i = 0; i < CELLS_EACH; i++)
        c->taken[out[i] = v[i]] = true;
    return 0;
}

int state_cells_take(struct state_cells *c, uint32_t out[CELLS_EACH], struct err *e)
{
    int got = 0;
    for (uint32_t cell = c->n; cell-- > c->named && got < CELLS_EACH;)
        if (!c->taken[cell])
            out[got++] = cell;
    if (got < CELLS_EACH)
        return err_set(e, ERR_VALIDATION, "no cells of recurrent state are left for this request");
    for (int i = 0; i < CELLS_EACH; i++)
        c->taken[out[i]] = true;
    return 0;
}

void state_cells_give(struct state_cells *c, const uint32_t v[CELLS_EACH])
{
    for (int i = 0; i < CELLS_EACH; i++) {
        assert(v[i] < c->n && c->taken[v[i]]);
        c->taken[v[i]] = false;
    }
}
