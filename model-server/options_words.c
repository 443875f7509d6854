#include "model-server/options_words.h"
#include "common/model/sentence.h"
#include "model-server/backend/format.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void add(struct options_words *w, const char *fmt, ...)
{
    const size_t n = strlen(w->options);
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->options + n, sizeof(w->options) - n, fmt, args);
    va_end(args);
}

void options_words(const struct serve_config *c, enum kv_dtype kv, struct options_words *out)
{
    const enum arith plain = activations_plain(c->activations, (int)c->dtype - 1);
    out->options[0] = '\0';
    add(out, "--kv-cache-dtype %s --activations %s", kv_dtype_name(kv), arith_name(plain));
    add(out, " --watermark-gamma %g --watermark-delta %g", c->watermark_gamma, c->watermark_delta);
    if (c->expert_parallel)
        add(out, " --enable-expert-parallel");
    if (c->rope_scaling && *c->rope_scaling)
        add(out, " --rope-scaling %.60s --rope-factor %g", c->rope_scaling, c->rope_factor);
    if (c->pooling) /* otherwise the files say it */
        add(out, " --pooling %s", sentence_pooling_choices[c->pooling]);
    if (c->cutoff_layer)
        add(out, " --cutoff-layer %u", c->cutoff_layer);
}
