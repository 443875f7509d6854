/* The launcher's options: how many shards, and what is refused in which words. */
#include "launcher/options/flags.h"
#include "launcher/options/foreign.h"
#include "tests/unit/test.h"
#include <string.h>

static int check(struct config *c, const char *line, int devices, struct err *e)
{
    char words[512];
    char *argv[32] = {"launcher"};
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    *c = (struct config){0};
    *e = (struct err)ERR_INIT;
    return flags_parse(&launcher_flags, c, argc, argv, NULL, e) || flags_check(c, devices, e);
}

static void refused(const char *line, int devices, const char *words)
{
    struct config c;
    struct err e;
    int rc = check(&c, line, devices, &e);
    flags_free(&launcher_flags, &c);
    assert_int_equal(rc, 1);
    assert_string_equal(e.msg, words);
}

static uint32_t shards(const char *line, int devices)
{
    struct config c;
    struct err e;
    assert_int_equal(check(&c, line, devices, &e), 0);
    flags_free(&launcher_flags, &c);
    return c.num_shard;
}

TEST(num_shard_follows_the_table)
{
    assert_int_equal(shards("", -1), 1);
    assert_int_equal(shards("", 4), 4);
    assert_int_equal(shards("--num-shard 2", 4), 2);
    assert_int_equal(shards("--sharded false", 4), 1);
    assert_int_equal(shards("--sharded false --num-shard 3", -1), 3);
    assert_int_equal(shards("--sharded true", 8), 8);
    assert_int_equal(shards("--sharded true --num-shard 2", -1), 2);
    assert_int_equal(shards("--pipeline-parallel-size 2", -1), 2);
    assert_int_equal(shards("--pipeline-parallel-size 2", 4), 4);
    assert_int_equal(shards("--pipeline-parallel-size 2 --num-shard 6", -1), 6);
    refused("--pipeline-parallel-size 2 --num-shard 3", -1,
            "Invalid argument: `num_shard` (3) must be a multiple of `pipeline_parallel_size` (2)");
    refused("--sharded true --num-shard 1", 4,
            "Invalid argument: `sharded` is true but `num_shard` <= 1");
    refused("--sharded true", 1,
            "not enough cuda devices: `sharded` is true but only found 1 CUDA devices");
    refused("--sharded true", -1,
            "Invalid argument: `sharded` is true but no device is visible: give `num_shard`");
    refused("--num-shard 0", -1, "--num-shard: 0 is outside 1..64");
}

TEST(contradictions_are_refused_in_order)
{
    refused("--quantize exl2 --num-shard 2 --validation-workers 0", -1,
            "Invalid argument: Sharding is currently not supported with `exl2` quantization");
    refused("--max-input-tokens 1024 --max-total-tokens 1024", -1,
            "Invalid argument: `max_input_tokens`(1024) must be < `max_total_tokens`(1024)");
    refused("--max-input-length 1024 --max-total-tokens 512 --validation-workers 0", -1,
            "Invalid argument: `max_input_tokens`(1024) must be < `max_total_tokens`(512)");
    refused("--validation-workers 0 --max-total-tokens 9 --max-batch-total-tokens 8", -1,
            "Invalid argument: `validation_workers` must be > 0");
    refused(
        "--max-total-tokens 9 --max-batch-total-tokens 8", -1,
        "Invalid argument: `max_total_tokens` must be <= `max_batch_total_tokens`. Given: 9 and 8");
    refused("--lora-adapters a@b,c@d@e", -1,
            "Invalid argument: Invalid LoRA adapter format: c@d@e");
    refused(
        "--quantize fp9", -1,
        "--quantize: `fp9` is not one of auto, awq, compressed-tensors, eetq, exl2, gptq, marlin, "
        "bitsandbytes, bitsandbytes-nf4, bitsandbytes-fp4, fp8, w8a8, int8, int4, none");
}

TEST(both_names_of_the_input_limit)
{
    struct config c;
    struct err e;
    assert_int_equal(check(&c, "--max-input-length 77", -1, &e), 0);
    assert_int_equal(c.max_input_tokens, 77);
    flags_free(&launcher_flags, &c);
    assert_int_equal(check(&c, "--max-input-length 77 --max-input-tokens 77", -1, &e), 1);
    assert_non_null(
        strstr(e.msg, "Both `max_input_tokens` (77) and `max_input_length` (77) are set."));
    flags_free(&launcher_flags, &c);
}

TEST(one_half_of_rope_implies_the_other)
{
    struct config c;
    struct err e;
    assert_int_equal(check(&c, "--rope-factor 2", -1, &e), 0);
    assert_int_equal(c.rope_scaling, 1);
    flags_free(&launcher_flags, &c);
    assert_int_equal(check(&c, "--rope-scaling dynamic", -1, &e), 0);
    assert_true(c.rope_factor == 1);
    flags_free(&launcher_flags, &c);
}

TEST(hostnames)
{
    assert_string_equal(flags_bind_address("127.0.0.1"), "127.0.0.1");
    assert_string_equal(flags_bind_address("::1"), "::1");
    assert_string_equal(flags_bind_address("localhost"), "localhost");
    assert_string_equal(flags_bind_address("[::]"), "[::]");
    assert_string_equal(flags_bind_address("[::"), "0.0.0.0");
    assert_string_equal(flags_bind_address("pod-7f4"), "0.0.0.0");
}

TEST(defaults_are_tgis)
{
    struct config c;
    struct err e;
    assert_int_equal(check(&c, "", -1, &e), 0);
    assert_int_equal(c.port, 3000);
    assert_int_equal(c.max_concurrent_requests, 128);
    assert_true(c.waiting_served_ratio == 0.3);
    assert_int_equal(c.max_waiting_tokens, 20);
    assert_int_equal(c.payload_limit, 2000000);
    assert_int_equal(c.graceful_termination_timeout, 90);
    assert_int_equal(c.cuda_graphs.n, 6);
    assert_int_equal(c.max_input_tokens, 0);
    flags_free(&launcher_flags, &c);
}

static bool is_ours(const char *name, size_t n)
{
    const struct flag *f = launcher_flags.flags;
    while (f->name && (strlen(f->name) != n || memcmp(f->name, name, n)))
        f++;
    return f->name;
}

/* Each is an option here, or names one, or says why none is needed. */
TEST(rows_of_other_servers)
{
    for (const struct flag_foreign *f = foreign_options; f->name; f++) {
        const bool elsewhere =
            f->kind == FOREIGN_SAME || f->kind == FOREIGN_SETS || f->kind == FOREIGN_MAPS;
        assert_false(!strncmp(f->name, "--", 2) && is_ours(f->name + 2, strlen(f->name) - 2));
        assert_int_equal(f->here != NULL, elsewhere);
        assert_true(!f->here || is_ours(f->here, strlen(f->here)));
        assert_int_equal(f->value != NULL, f->kind == FOREIGN_SETS || f->kind == FOREIGN_MAPS);
        assert_true(f->advice || elsewhere);
        for (const char *s = f->advice ? f->advice : ""; (s = strstr(s, "--")); s += 2)
            assert_true(is_ours(s + 2, strspn(s + 2, "abcdefghijklmnopqrstuvwxyz-")));
        for (const struct flag_foreign *g = foreign_options; g < f; g++)
            assert_string_not_equal(f->name, g->name);
    }
}

TEST(options_of_other_servers_are_taken)
{
    struct config c;
    struct err e;
    assert_int_equal(check(&c,
                           "org/name -tp 2 -pp 2 --max-model-len=8192 --dtype half --enforce-eager "
                           "--enable-auto-tool-choice --tool-call-parser hermes --host ::1",
                           -1, &e),
                     0);
    assert_string_equal(c.model_id, "org/name");
    assert_string_equal(c.hostname, "::1");
    assert_int_equal(c.num_shard, 4);
    assert_int_equal(c.max_total_tokens, 8192);
    assert_int_equal(c.dtype, 1);
    assert_int_equal(c.cuda_graphs.n, 1);
    assert_string_equal(c.cuda_graphs.v[0], "0");
    flags_free(&launcher_flags, &c);
    assert_int_equal(check(&c, "-m x -c 4096 -np 4 -t 3 -ngl 0 --jinja -v --port 1", -1, &e), 0);
    assert_string_equal(c.model_id, "x");
    assert_int_equal(c.max_total_tokens, 4096);
    assert_int_equal(c.max_batch_size, 4);
    assert_int_equal(c.threads, 3);
    assert_int_equal(c.device, DEVICE_CPU);
    assert_string_equal(c.log_level, "debug");
    flags_free(&launcher_flags, &c);
    refused("--num-shard 4 --tensor-parallel-size 2", -1,
            "Invalid argument: `num_shard` (4) is not `tensor_parallel_size` (2) times "
            "`pipeline_parallel_size` (1): give one of the two");
    refused("--api-key=", -1,
            "Invalid argument: `api_key` is empty: leave it out to serve without keys");
}

TEST(options_of_other_servers_are_refused_with_advice)
{
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"-ngl 20", "unexpected argument '-ngl' found; use --device: a model lies on one kind of "
                    "device. See launcher --help"},
        {"--cache-type-k q8_0", "unexpected argument '--cache-type-k' found; use --kv-cache-dtype, "
                                "one type for keys and values: q8_0 is int8, q4_0 is int4. See "
                                "launcher --help"},
        {"--jinja=1", "unexpected argument '--jinja=1' found; chat templates are always rendered. "
                      "See launcher --help"},
        {"--ctx-size", "--ctx-size needs a value"},
        {"--tool-call-parser", "--tool-call-parser needs a value"},
        {"-ngl", "-ngl needs a value"},
        {"a b", "unexpected argument 'b' found; use --model-id. See launcher --help"},
        {"--model-id a b", "unexpected argument 'b' found; use --model-id. See launcher --help"},
        {"a -m b", "unexpected argument 'a' found; use --model-id. See launcher --help"},
        {"helth", "unexpected argument 'helth' found; did you mean 'health'? See launcher --help"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refused(cases[i].line, -1, cases[i].words);
}

int main(void) { return tests_run(NULL, NULL); }
