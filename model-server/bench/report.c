#include "model-server/bench/report.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- what a case comes to */

/* One pass over the weights for `tokens` tokens: experts that none of them chose are not read. */
static double pass_bytes(const struct model_info *i, double tokens)
{
    double touched = 1 - pow(1 - i->expert_share, tokens);
    return (double)i->dense_bytes + touched * (double)i->expert_bytes;
}

void bench_work(const struct model *m, enum kv_dtype kv_dtype, struct bench_result *out)
{
    const struct bench_case *c = &out->of;
    const struct model_info *i = model_info(m);
    double per_kv = (double)model_kv_block_bytes(m, BENCH_BLOCK, kv_dtype) / BENCH_BLOCK;
    double n = c->tokens, tokens = n * c->batch, first = c->decode ? c->depth : 0, context;
    double head = 2.0 * i->vocab * i->hidden, chunks = ceil(n / c->chunk);
    double few = (double)i->few_dense_ops + i->expert_share * (double)i->few_expert_ops;
    context = c->batch * (n * first + n * (n + 1) / 2); /* keys, over all tokens */
    out->ops = tokens * ((double)i->dense_ops - head + i->expert_share * (double)i->expert_ops);
    out->ops += head * (c->decode ? tokens : chunks); /* a prompt's last tokens */
    out->ops -= c->decode ? 0 : few * (n - chunks);
    out->ops += 4.0 * i->n_layers * i->n_heads * i->head_dim * context;
    if (c->decode)
        out->bytes = n * pass_bytes(i, c->batch) + per_kv * context;
    else {
        out->bytes = chunks * pass_bytes(i, n / chunks) + per_kv * n * (chunks + 1) / 2;
    }
}

static uint64_t status_kib(const char *key)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f)) {
        char name[32];
        uint64_t v;
        if (sscanf(line, "%31[^:]: %" SCNu64, name, &v) == 2 && strcmp(name, key) == 0)
            kib = v;
    }
    if (f)
        fclose(f);
    return kib;
}

void bench_memory(uint64_t *now, uint64_t *peak)
{
    *now = status_kib("VmRSS") * 1024;
    *peak = status_kib("VmHWM") * 1024;
}

/* ---------------------------------------------------------------- the two forms */

static double tokens_of(const struct bench_result *v) { return (double)v->of.tokens * v->of.batch; }

static uint64_t rest_bytes(const struct bench_report *r)
{
    uint64_t known = r->weight_bytes + r->kv_bytes;
    return r->rss_bytes > known ? r->rss_bytes - known : 0;
}

static double share(double of, double limit) { return limit > 0 ? of / limit : 0; }

static double host_us(const struct bench_result *v) { return v->s.host * 1e6 / v->of.tokens; }

static void json_result(struct buf *out, const struct bench_report *r, const struct bench_result *v)
{
    double ops = v->ops / v->s.median, bytes = v->bytes / v->s.median;
    buf_fmt(out,
            "{\"test\":\"%s\",\"tokens\":%u,\"batch\":%u,\"depth\":%u,\"rounds\":%u,"
            "\"tokens_per_s\":%.3f,\"best_tokens_per_s\":%.3f,\"worst_tokens_per_s\":%.3f,"
            "\"flop_per_s\":%.4g,\"read_bytes_per_s\":%.4g,\"fraction_of_fp32\":%.3f,"
            "\"fraction_of_read\":%.3f,\"host_us_per_step\":%.2f}",
            v->of.decode ? "decode" : "prefill", v->of.tokens, v->of.batch, v->of.depth, r->rounds,
            tokens_of(v) / v->s.median, tokens_of(v) / v->s.best, tokens_of(v) / v->s.worst, ops,
            bytes, share(ops, r->fp32_limit), share(bytes, r->read_limit), host_us(v));
}

void bench_print_json(struct buf *out, const struct bench_report *r, const struct bench_result *v,
                      size_t n)
{
    buf_str(out, "{\"schema\":1,\"version\":\"" VERSION "\",\"model\":");
    buf_json_str(out, r->model, strlen(r->model));
    buf_fmt(out, ",\"random\":%s,\"device\":", r->random ? "true" : "false");
    buf_json_str(out, r->device, strlen(r->device));
    buf_fmt(out,
            ",\"threads\":%d,\"dtype\":\"%s\",\"quantize\":\"%s\",\"kv_cache_dtype\":\"%s\","
            "\"load_s\":%.3f,\"memory\":{\"weight_bytes\":%" PRIu64 ",\"kv_bytes\":%" PRIu64
            ",\"rest_bytes\":%" PRIu64 ",\"rss_bytes\":%" PRIu64 ",\"load_peak_bytes\":%" PRIu64
            "},\"limits\":{\"read_bytes_per_s\":%.4g,\"fp32_flop_per_s\":%.4g},\"results\":[",
            r->threads, dtype_name(r->dtype), r->quantize, kv_dtype_name(r->kv_dtype), r->load_s,
            r->weight_bytes, r->kv_bytes, rest_bytes(r), r->rss_bytes, r->load_peak_bytes,
            r->read_limit, r->fp32_limit);
    for (size_t i = 0; i < n; i++) {
        buf_str(out, i ? "," : "");
        json_result(out, r, &v[i]);
    }
    buf_str(out, "]}\n");
}

void bench_print_table(struct buf *out, const struct bench_report *r, const struct bench_result *v,
                       size_t n)
{
    buf_fmt(out, "%s: %s weights%s%s, %s cache; %s\n", r->model, dtype_name(r->dtype),
            r->quantize[0] && strcmp(r->quantize, "none") ? ", quantised " : "",
            strcmp(r->quantize, "none") ? r->quantize : "", kv_dtype_name(r->kv_dtype), r->device);
    buf_fmt(out,
            "memory: weights %.3f GB, cache %.3f GB, rest %.3f GB; at most %.3f GB in %.2f s "
            "of loading\n",
            (double)r->weight_bytes * 1e-9, (double)r->kv_bytes * 1e-9,
            (double)rest_bytes(r) * 1e-9, (double)r->load_peak_bytes * 1e-9, r->load_s);
    buf_fmt(out, "limits, same run: read %.1f GB/s, fp32 %.0f GFLOP/s\n\n", r->read_limit * 1e-9,
            r->fp32_limit * 1e-9);
    buf_str(out, "| case | tokens/s | best | worst | GFLOP/s | of fp32 | GB/s | of read |\n"
                 "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const struct bench_case *c = &v[i].of;
        double s = v[i].s.median, all = tokens_of(&v[i]);
        if (c->decode)
            buf_fmt(out, "| decode, batch %u, depth %u ", c->batch, c->depth);
        else
            buf_fmt(out, "| prefill %u ", c->tokens);
        buf_fmt(out, "| %.2f | %.2f | %.2f | %.1f | %.2f | %.1f | %.2f |\n", all / s,
                all / v[i].s.best, all / v[i].s.worst, v[i].ops / s * 1e-9,
                share(v[i].ops / s, r->fp32_limit), v[i].bytes / s * 1e-9,
                share(v[i].bytes / s, r->read_limit));
    }
}
