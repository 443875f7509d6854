#include "model-server/engine/windows.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The first block that the window of position `pos` covers. */
static uint32_t first_seen(uint32_t pos, uint32_t window, uint32_t block_size)
{
    return pos + 1 > window ? (pos + 1 - window) / block_size : 0;
}

int windows_check(const struct seq *s, uint32_t from, const uint32_t *v, size_t n, uint32_t limit,
                  struct err *e)
{
    if (n == 0)
        return 0;
    if (!s->windows)
        return err_set(e, ERR_VALIDATION, "request %llu: there is no cache of windows",
                       (unsigned long long)s->id);
    if (from > s->windows_end || from > s->max_blocks || n > s->max_blocks - from)
        return err_set(e, ERR_VALIDATION,
                       "request %llu: windows of blocks %u to %zu do not follow those of its %u",
                       (unsigned long long)s->id, from, from + n, s->windows_end);
    for (size_t i = 0; i < n; i++)
        if (v[i] >= limit)
            return err_set(e, ERR_VALIDATION, "block %u of windows: there are %u", v[i], limit);
    return 0;
}

void windows_put(struct seq *s, uint32_t from, const uint32_t *v, size_t n)
{
    if (n == 0)
        return;
    assert(s->windows && from + n <= s->max_blocks);
    memcpy(s->windows + from, v, n * sizeof(*v));
    s->windows_end = from + n > s->windows_end ? (uint32_t)(from + n) : s->windows_end;
}

/* Assigns blocks from number 1 on, for one request at a time. */
static int take_any(struct seq *s, const struct seq_limits *lim, struct err *e)
{
    if (s->max_blocks >= lim->n_windows)
        return err_set(e, ERR_VALIDATION, "%u blocks do not fit into the %u of windows",
                       s->max_blocks, lim->n_windows);
    for (uint32_t i = 0; i < s->max_blocks; i++)
        s->windows[i] = 1 + i;
    s->windows_end = s->max_blocks;
    return 0;
}

int windows_place(struct seq *s, const struct seq_spec *spec, const struct seq_limits *lim,
                  struct err *e)
{
    if (!lim->n_windows)
        return spec->n_windows ? err_set(e, ERR_VALIDATION, "there is no cache of windows") : 0;
    if (!(s->windows = calloc(s->max_blocks, sizeof(*s->windows))))
        return err_nomem(e);
    if (!spec->n_blocks)
        return take_any(s, lim, e);
    const uint32_t first = first_seen(spec->cache_len, lim->window, lim->block_size);
    if (spec->window_from > first || !spec->n_windows)
        return err_set(e, ERR_VALIDATION, "windows from block %u on: block %u is seen",
                       spec->window_from, first);
    s->windows_end = spec->window_from; /* nothing before is needed */
    if (windows_check(s, spec->window_from, spec->windows, spec->n_windows, lim->n_windows, e))
        return -1;
    windows_put(s, spec->window_from, spec->windows, spec->n_windows);
    return 0;
}

void windows_pass(struct seq *s, uint32_t window, uint32_t block_size)
{
    if (!s->windows)
        return;
    const uint32_t first = first_seen(s->cached, window, block_size);
    assert(first <= s->max_blocks);
    for (; s->windows_kept < first; s->windows_kept++)
        s->windows[s->windows_kept] = 0;
}
