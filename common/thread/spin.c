#include "common/thread/spin.h"
#include "common/clock.h"

/* TRIES: the thread may lose its core in one of them. SHORTEST: a share of the whole loop. */
enum { TRIES = 3, PAUSES = 128, SHORTEST = 32, MOST = 1 << 20 };
/* A loop is so many times as long as the waits that it saw; it follows shorter ones by a share. */
enum { ROOM = 4, SLOWLY = 8 };

struct spin spin_new(bool whole)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        const int64_t begin = clock_ns();
        for (int k = 0; k < PAUSES; k++)
            spin_pause();
        const int64_t took = clock_ns() - begin;
        best = took < best ? took : best;
    }
    const int64_t n = (int64_t)SPIN_NS * PAUSES / (best > 0 ? best : 1);
    const uint32_t most = n > MOST ? MOST : n < SHORTEST ? SHORTEST : (uint32_t)n;
    return (struct spin){most, most, whole};
}

/* Within [least, most]. */
static uint32_t bounded(const struct spin *s, uint32_t n)
{
    const uint32_t least = s->most / SHORTEST;
    return n > s->most ? s->most : n < least ? least : n;
}

void spin_gained(struct spin *s, uint32_t n)
{
    const uint32_t want = bounded(s, s->whole || n >= s->most ? s->most : ROOM * n);
    s->now = want > s->now ? want : s->now - (s->now - want) / SLOWLY;
}

/* The end of a sleep takes time, too: a wait that a whole loop would have seen lasts up to twice as
 * long. */
void spin_slept(struct spin *s, int64_t ns)
{
    const bool brief = ns <= (int64_t)2 * SPIN_NS;
    s->now = brief && s->whole ? s->most : bounded(s, brief ? 2 * s->now : s->now / 2);
}
