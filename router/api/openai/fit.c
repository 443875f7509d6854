#include "router/api/openai/fit.h"
#include "common/json/json.h"
#include "router/call/tokens.h"
#include <string.h>

static bool has_role(const cJSON *m, const char *role)
{
    return !strcmp(json_str(m, "role", ""), role);
}

uint32_t fit_cuts(const cJSON *messages, bool turns, uint32_t *out)
{
    uint32_t n = 0, at = 0;
    bool before = false; /* would a cut drop anything? */
    for (const cJSON *m = json_first(messages); m; m = m->next, at++) {
        bool may = turns ? has_role(m, "user") : !has_role(m, "tool") && !has_role(m, "system");
        if (may && before)
            out[n++] = at;
        before |= !has_role(m, "system");
    }
    return n;
}

cJSON *fit_cut(const cJSON *messages, uint32_t at)
{
    cJSON *left = cJSON_CreateArray();
    uint32_t i = 0;
    for (cJSON *m = messages->child; left && m; m = m->next, i++)
        if ((i >= at || has_role(m, "system")) && !cJSON_AddItemReferenceToArray(left, m)) {
            cJSON_Delete(left);
            return NULL;
        }
    return left;
}

struct fitting {
    struct call *c;
    const cJSON *messages;
    const struct ask *q;
    uint32_t most;
    fit_render *render;
    void *of;
};

/* Renders the messages after the cut; do they fit? -1: error. */
static int fits(const struct fitting *f, uint32_t at, struct err *e)
{
    cJSON *left = fit_cut(f->messages, at);
    uint32_t n = 0;
    int rc = left ? f->render(f->of, left, e) : err_nomem(e);
    cJSON_Delete(left);
    if (rc == 0)
        rc = tokens_count(f->c, f->q, f->q->add_special_tokens, &n, e);
    return rc != 0 ? -1 : n <= f->most;
}

/* Renders the first cut that fits: 1; none does: 0. Binary search: later cuts give shorter
 * prompts. */
static int try_cuts(const struct fitting *f, const uint32_t *cut, uint32_t n, struct err *e)
{
    uint32_t low = 0, high = n - 1;
    int fit = n ? fits(f, cut[high], e) : 0;
    if (fit <= 0)
        return fit;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if ((fit = fits(f, cut[mid], e)) < 0)
            return -1;
        if (fit)
            high = mid;
        else
            low = mid + 1;
    }
    return fits(f, cut[high], e);
}

int fit_prompt(struct call *c, const cJSON *messages, const struct ask *q, uint32_t most,
               fit_render *render, void *of, struct err *e)
{
    struct fitting f = {c, messages, q, most, render, of};
    uint32_t *cut = ARENA_NEW(&c->arena, uint32_t, (size_t)cJSON_GetArraySize(messages) + 1);
    if (!cut)
        return err_nomem(e);
    int fit = fits(&f, 0, e);
    if (fit == 0)
        fit = try_cuts(&f, cut, fit_cuts(messages, true, cut), e);
    if (fit == 0)
        fit = try_cuts(&f, cut, fit_cuts(messages, false, cut), e);
    return fit == 0 ? render(of, messages, e) : fit < 0 ? -1 : 0;
}
