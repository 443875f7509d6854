#include "router/scheduler/adapters.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint32_t served_adapters_find(const struct served_adapters *s, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].name, name) == 0)
            return i + 1;
    return 0;
}

void served_adapters_free(struct served_adapters *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free(s->v[i].name);
    free(s->v);
    *s = (struct served_adapters){.n = 0};
}

bool adapters_init(struct adapter_books *b, const struct served_adapters *s)
{
    *b = (struct adapter_books){.served = s};
    b->running = calloc(s->n + (size_t)1, sizeof(*b->running));
    return b->running != NULL;
}

void adapters_free(struct adapter_books *b)
{
    for (uint32_t i = 0; i < ADAPTERS_MAX_UNLISTED; i++)
        free(b->unlisted[i]);
    free(b->running);
}

uint32_t adapters_number(struct adapter_books *b, const char *name)
{
    if (!name || !*name)
        return 0;
    uint32_t number = served_adapters_find(b->served, name);
    for (uint32_t i = 0; !number && i < ADAPTERS_MAX_UNLISTED; i++) {
        if (!b->unlisted[i] && !(b->unlisted[i] = strdup(name)))
            return ADAPTER_UNNUMBERED;
        if (strcmp(b->unlisted[i], name) == 0)
            number = b->served->n + 1 + i;
    }
    return number ? number : ADAPTER_UNNUMBERED;
}

static bool listed(const struct adapter_books *b, uint32_t number)
{
    return number && number <= b->served->n;
}

bool adapters_fit(const struct adapter_books *b, uint32_t number)
{
    return !listed(b, number) || b->running[number] ||
           b->pages + b->served->v[number - 1].pages <= b->served->pages;
}

void adapters_enter(struct adapter_books *b, uint32_t number)
{
    if (listed(b, number) && b->running[number]++ == 0)
        b->pages += b->served->v[number - 1].pages;
}

void adapters_leave(struct adapter_books *b, uint32_t number)
{
    if (!listed(b, number))
        return;
    assert(b->running[number]);
    if (--b->running[number] == 0)
        b->pages -= b->served->v[number - 1].pages;
}
