#include "model-server/options_words.h"
#include "model-server/backend/format.h"
#include <stdio.h>
#include <string.h>

/* The k-th part of a text with ", " between its parts; empty: it has fewer. */
static const char *part(const char *text, int k)
{
    while (k-- > 0)
        text = (text = strchr(text, ',')) ? text + 2 : "";
    return text;
}

/* Of a CPU: "CPU, 2 threads, AVX-512 VNNI BF16, bfloat16 products". Products that round, and those
 * of matrix units, have the order of their instructions; the others' is the same on all CPUs
 * (docs/decisions/invariance.md). Of a GPU: its kind, "GPU 0, NAME, compute capability 9.0, ...".
 */
static void find_products(const char *backend, const char *device, char *out, size_t size)
{
    const bool cpu = strcmp(backend, "cpu") == 0;
    const char *at = part(device, cpu ? 2 : 1), *end = cpu ? "" : part(at, 2);
    if (cpu && !strstr(at, " products"))
        at = "";
    const size_t n = strlen(at) - (*end ? strlen(end) + 2 : 0);
    snprintf(out, size, "%.*s", (int)n, at);
}

void options_words(const struct serve_config *c, enum kv_dtype kv, const char *backend,
                   const char *device, struct options_words *out)
{
    const bool scaled = c->rope_scaling && *c->rope_scaling;
    int n = snprintf(out->options, sizeof(out->options),
                     "--kv-cache-dtype %s --activations %s --watermark-gamma %g "
                     "--watermark-delta %g%s",
                     kv_dtype_name(kv),
                     arith_name(activations_plain(c->activations, (int)c->dtype - 1)),
                     c->watermark_gamma, c->watermark_delta,
                     c->expert_parallel ? " --enable-expert-parallel" : "");
    if (scaled && n > 0 && n < (int)sizeof(out->options))
        snprintf(out->options + n, sizeof(out->options) - (size_t)n,
                 " --rope-scaling %.60s --rope-factor %g", c->rope_scaling, c->rope_factor);
    find_products(backend, device, out->products, sizeof(out->products));
}
