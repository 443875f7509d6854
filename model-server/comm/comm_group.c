/* comm_group.c - assigns the ranks of a communicator to groups. */
#include "model-server/comm/comm_group.h"
#include <assert.h>
#include <sys/random.h>

/* What each rank contributes to the gather. */
struct split_entry {
    int32_t color;
    uint32_t name[2]; /* a random number; the one of the first rank becomes the group's name */
};

/* Number of machines of the group. Ranks of a machine are consecutive. */
static int count_nodes(const struct comm *c, const struct comm_group *g)
{
    const int each = c->nodes ? c->world / c->nodes : c->world;
    int n = 1;
    for (int i = 1; i < g->n; i++)
        n += g->ranks[i] / each != g->ranks[i - 1] / each;
    return n;
}

struct comm *comm_split(struct comm *c, int color, struct err *e)
{
    struct split_entry mine = {.color = color}, all[COMM_MOST_RANKS];
    struct comm_group g = {.whole = c->whole ? c->whole : c};
    assert(c->ops->split && c->world <= COMM_MOST_RANKS);
    if (getrandom(mine.name, sizeof(mine.name), 0) != (ssize_t)sizeof(mine.name))
        return err_sys(e, "getrandom"), NULL;
    if (comm_gather_bytes(c, &mine, all, sizeof(mine), e))
        return NULL;
    for (int r = 0; r < c->world; r++) {
        if (all[r].color != color)
            continue;
        if (r == c->rank)
            g.me = g.n;
        if (!g.n)
            g.name = (uint64_t)all[r].name[0] << 32 | all[r].name[1];
        g.ranks[g.n++] = r;
    }
    g.nodes = count_nodes(c, &g);
    return g.n == 1 ? comm_solo() : c->ops->split(c, &g, e);
}
