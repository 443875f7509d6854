#include "router/scheduler/adapters.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the scheduler's accounting */

bool adapters_init(struct adapter_accounts *b, struct served_adapters *s, uint32_t pool)
{
    *b = (struct adapter_accounts){.pool = pool, .next_number = 1};
    return adapters_replace(b, s);
}

void adapters_free(struct adapter_accounts *b)
{
    for (uint32_t i = 0; i < ADAPTERS_MAX_UNLISTED; i++)
        free(b->unlisted[i]);
    free(b->use);
    served_adapters_release(b->list);
    *b = (struct adapter_accounts){0};
}

/* Index in the list, or UINT32_MAX. */
static uint32_t place_of(const struct adapter_accounts *b, uint32_t number)
{
    uint32_t low = 0, high = b->list->n;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (b->list->v[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < b->list->n && b->list->v[low].number == number ? low : UINT32_MAX;
}

bool adapters_replace(struct adapter_accounts *b, struct served_adapters *s)
{
    struct adapter_use *use = calloc(s->n + (size_t)1, sizeof(*use));
    struct served_adapters *old = b->list;
    if (!use)
        return false;
    b->pages = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t was = old ? place_of(b, s->v[i].number) : UINT32_MAX;
        if (was != UINT32_MAX)
            use[i] = b->use[was];
        b->pages += use[i].running ? s->v[i].pages : 0;
        if (s->v[i].number >= b->next_number)
            b->next_number = s->v[i].number + 1;
    }
    assert(b->next_number < ADAPTER_FIRST_UNLISTED);
    free(b->use);
    b->use = use;
    b->list = served_adapters_hold(s);
    served_adapters_release(old);
    return true;
}

uint32_t adapters_number(struct adapter_accounts *b, const char *name)
{
    if (!name || !*name)
        return 0;
    const struct served_adapter *a = served_adapters_find(b->list, name);
    uint32_t number = a ? a->number : 0;
    for (uint32_t i = 0; !number && i < ADAPTERS_MAX_UNLISTED; i++) {
        if (!b->unlisted[i] && !(b->unlisted[i] = strdup(name)))
            return ADAPTER_UNNUMBERED;
        if (strcmp(b->unlisted[i], name) == 0)
            number = ADAPTER_FIRST_UNLISTED + i;
    }
    return number ? number : ADAPTER_UNNUMBERED;
}

uint32_t adapters_known(const struct adapter_accounts *b, uint32_t number)
{
    const uint32_t i = place_of(b, number);
    return i == UINT32_MAX ? 0 : b->use[i].known;
}

bool adapters_fit(const struct adapter_accounts *b, uint32_t number)
{
    const uint32_t i = number ? place_of(b, number) : UINT32_MAX;
    return i == UINT32_MAX || b->use[i].running || b->pages + b->list->v[i].pages <= b->pool;
}

void adapters_retain(struct adapter_accounts *b, uint32_t number)
{
    const uint32_t i = place_of(b, number);
    if (i != UINT32_MAX)
        b->use[i].known++;
}

void adapters_release(struct adapter_accounts *b, uint32_t number)
{
    const uint32_t i = place_of(b, number);
    if (i == UINT32_MAX)
        return;
    assert(b->use[i].known > b->use[i].running);
    b->use[i].known--;
}

void adapters_activate(struct adapter_accounts *b, uint32_t number)
{
    const uint32_t i = place_of(b, number);
    if (i != UINT32_MAX && b->use[i].running++ == 0)
        b->pages += b->list->v[i].pages;
}

void adapters_deactivate(struct adapter_accounts *b, uint32_t number)
{
    const uint32_t i = place_of(b, number);
    if (i == UINT32_MAX)
        return;
    assert(b->use[i].running);
    if (--b->use[i].running > 0)
        return;
    assert(b->pages >= b->list->v[i].pages);
    b->pages -= b->list->v[i].pages;
}
