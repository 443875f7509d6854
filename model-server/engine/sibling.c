#include "model-server/engine/sibling.h"
#include <assert.h>
#include <stdlib.h>

int sibling_take(struct sibling *b, struct siblings *of, uint32_t most, struct err *e)
{
    assert(of->first);
    if (b->of)
        return 1;
    for (uint32_t i = 0; i < SIBLINGS_MOST; i++) {
        if (of->taken[i])
            continue;
        if (!(b->table = malloc(most * sizeof(*b->table))))
            return err_nomem(e);
        of->taken[i] = true;
        b->of = of;
        b->block = of->first + i;
        return 1;
    }
    return 0;
}

void sibling_free(struct sibling *b)
{
    if (b->of)
        b->of->taken[b->block - b->of->first] = false;
    free(b->table);
    *b = (struct sibling){0};
}
