/* From the configuration to the command lines of the children. */
#include "launcher/draft.h"
#include "launcher/plan/plan.h"
#include "tests/unit/test.h"
#include <string.h>

static char *inherited[] = {"PATH=/bin",
                            "LOG_LEVEL=info,h2=warn",
                            "HOSTNAME=pod-7",
                            "API_KEY=old",
                            "RANK=9",
                            "CUDA_GRAPHS=1,2",
                            "HF_API_TOKEN=t",
                            "HOSTNAMES=kept",
                            "NOTIFY_SOCKET=/run/n",
                            "WATCHDOG_USEC=9",
                            "WATCHDOG_PID=1",
                            NULL};

struct fixture {
    struct config cfg;
    struct arena arena;
    struct plan plan;
    struct command cmd;
    struct err e;
};

static void given(struct fixture *f, const char *line)
{
    static char words[512];
    char *argv[32] = {"launcher"};
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    *f = (struct fixture){.e = ERR_INIT};
    arena_init(&f->arena, 1 << 20);
    assert_int_equal(flags_parse(&launcher_flags, &f->cfg, argc, argv, NULL, &f->e), 0);
    assert_int_equal(flags_check(&f->cfg, -1, &f->e), 0);
    assert_int_equal(plan_init(&f->plan, &f->cfg, "7-e1", inherited, &f->arena, 16, &f->e), 0);
}

static void end(struct fixture *f)
{
    flags_free(&launcher_flags, &f->cfg);
    arena_reset(&f->arena);
}

/* The value after `--name`, "" for a bare option at the end, NULL if absent. */
static const char *arg(const struct command *c, const char *name)
{
    for (size_t i = 1; i < c->argv.n; i++)
        if (!strcmp(c->argv.v[i], name))
            return i + 1 < c->argv.n ? c->argv.v[i + 1] : "";
    return NULL;
}

static const char *env(const struct command *c, const char *name)
{
    const char *found = NULL;
    size_t n = strlen(name);
    for (size_t i = 0; i < c->env.n; i++)
        if (!strncmp(c->env.v[i], name, n) && c->env.v[i][n] == '=') {
            assert_null(found); /* a name twice would mean whatever libc finds first */
            found = c->env.v[i] + n + 1;
        }
    return found;
}

TEST(a_shard_of_many)
{
    struct fixture f;
    given(&f, "--model-id m --num-shard 4 --dtype bfloat16 --max-total-tokens 4096 --cuda-graphs "
              "0,8,4 --rope-factor 2 "
              "--enable-prefill-logprobs --trust-remote-code --lora-adapters a,b=/x");
    f.plan.group = "g1";
    assert_int_equal(plan_shard(&f.plan, 3, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.argv.v[1], "serve");
    assert_string_equal(f.cmd.argv.v[2], "m");
    assert_null(f.cmd.argv.v[f.cmd.argv.n]);
    assert_string_equal(arg(&f.cmd, "--uds-path"), "/tmp/text-generation-server-3000");
    assert_string_equal(arg(&f.cmd, "--dtype"), "bfloat16");
    assert_string_equal(arg(&f.cmd, "--threads"), "4");
    assert_non_null(arg(&f.cmd, "--sharded"));
    assert_non_null(arg(&f.cmd, "--trust-remote-code"));
    assert_null(arg(&f.cmd, "--quantize"));
    assert_null(arg(&f.cmd, "--port"));
    assert_string_equal(env(&f.cmd, "RANK"), "3");
    assert_string_equal(env(&f.cmd, "WORLD_SIZE"), "4");
    assert_string_equal(env(&f.cmd, "MASTER_ADDR"), "localhost");
    assert_string_equal(env(&f.cmd, "MASTER_PORT"), "29500");
    assert_string_equal(env(&f.cmd, "SHARD_GROUP"), "g1");
    assert_string_equal(env(&f.cmd, "MAX_TOTAL_TOKENS"), "4096");
    assert_string_equal(env(&f.cmd, "CUDA_GRAPHS"), "8,4");
    assert_string_equal(env(&f.cmd, "CUDA_MEMORY_FRACTION"), "1");
    assert_string_equal(env(&f.cmd, "ROPE_SCALING"), "linear");
    assert_string_equal(env(&f.cmd, "ROPE_FACTOR"), "2");
    assert_string_equal(env(&f.cmd, "REQUEST_LOGPROBS"), "1");
    assert_string_equal(env(&f.cmd, "LORA_ADAPTERS"), "a,b=/x");
    assert_string_equal(env(&f.cmd, "HF_TOKEN"), "t");
    assert_null(arg(&f.cmd, "--skip-missing-adapters"));
    assert_int_equal(plan_shard_again(&f.plan, 3, &f.cmd, &f.e), 0);
    assert_non_null(arg(&f.cmd, "--skip-missing-adapters"));
    end(&f);
}

/* The router is given the address of the draft shards, the shards verify drafts and leave it a
 * quarter of the cores.
 */
TEST(a_draft_model)
{
    struct fixture f;
    given(&f, "--model-id m --draft-model-id small");
    assert_int_equal(f.plan.n_sources, 2);
    assert_string_equal(f.plan.sources[1].id, "small");
    assert_int_equal(plan_shard(&f.plan, 0, &f.cmd, &f.e), 0);
    assert_string_equal(arg(&f.cmd, "--speculate"), "8");
    assert_string_equal(arg(&f.cmd, "--threads"), "12");
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(arg(&f.cmd, "--draft-shard-uds-path"),
                        "/tmp/text-generation-server-3000-draft-0");
    struct child child = {0};
    struct draft d;
    draft_init(&d, &f.plan, &child);
    assert_int_equal(plan_shard(&d.plan, 0, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.argv.v[2], "small");
    assert_string_equal(arg(&f.cmd, "--threads"), "4");
    assert_string_equal(arg(&f.cmd, "--uds-path"), "/tmp/text-generation-server-3000-draft");
    assert_string_equal(env(&f.cmd, "SHARD_GROUP"), "7-e1-draft");
    assert_null(arg(&f.cmd, "--speculate"));
    draft_free(&d);
    end(&f);
}

/* It shares the launch, and nothing that was said of the first model alone. */
TEST(another_model)
{
    struct fixture f;
    struct config cfg;
    struct plan other;
    given(&f, "--model-id m --revision r --dtype float16 --rope-factor 2 --rope-scaling linear "
              "--lora-adapters a --max-total-tokens 300");
    plan_other(&f.plan, "other", "/tmp/x", "g", &cfg, &f.arena, &other);
    assert_int_equal(plan_shard(&other, 0, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.argv.v[2], "other");
    assert_string_equal(arg(&f.cmd, "--uds-path"), "/tmp/x");
    assert_string_equal(arg(&f.cmd, "--dtype"), "float16");
    assert_string_equal(env(&f.cmd, "SHARD_GROUP"), "g");
    assert_string_equal(env(&f.cmd, "MAX_TOTAL_TOKENS"), "300");
    assert_null(arg(&f.cmd, "--revision"));
    assert_null(env(&f.cmd, "ROPE_FACTOR"));
    assert_null(env(&f.cmd, "LORA_ADAPTERS"));
    assert_int_equal(plan_shard(&f.plan, 0, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "LORA_ADAPTERS"), "a");
    end(&f);
}

/* The same model with its part of the machine; the router is told of all. */
TEST(replicas)
{
    struct fixture f;
    struct config cfg;
    struct plan one;
    struct share near = {0}, far = {.devices = "2,3"};
    given(&f, "--model-id m --replicas 2 --num-shard 2 --lora-adapters a --replica-address "
              "127.0.0.1:8000,127.0.0.1:8001");
    for (int i = 8; i < 14; i++)
        CPU_SET(i, &near.cores);
    assert_string_equal(plan_first_address(&f.cfg, &f.arena),
                        "unix:/tmp/text-generation-server-3000-r0-0");
    plan_replica(&f.plan, 1, &near, &cfg, &f.arena, &one);
    assert_int_equal(plan_shard(&one, 1, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.argv.v[2], "m");
    assert_string_equal(arg(&f.cmd, "--uds-path"), "/tmp/text-generation-server-3000-r1");
    assert_string_equal(arg(&f.cmd, "--threads"), "3");
    assert_string_equal(env(&f.cmd, "CUDA_MEMORY_FRACTION"), "0.5");
    assert_string_equal(env(&f.cmd, "SHARD_GROUP"), "7-e1-r1");
    assert_string_equal(env(&f.cmd, "LORA_ADAPTERS"), "a");
    assert_ptr_equal(f.cmd.cores, &near.cores);
    plan_replica(&f.plan, 0, &far, &cfg, &f.arena, &one);
    assert_int_equal(plan_shard(&one, 0, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "CUDA_VISIBLE_DEVICES"), "2,3");
    assert_null(f.cmd.cores);
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(arg(&f.cmd, "--master-shard-uds-path"),
                        "/tmp/text-generation-server-3000-r0-0");
    assert_string_equal(arg(&f.cmd, "--replica-address"),
                        "/tmp/text-generation-server-3000-r1-0,127.0.0.1:8000,127.0.0.1:8001");
    end(&f);
    given(&f, "--model-id m --replicas 0 --replica-discovery dns:name:80");
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(arg(&f.cmd, "--master-shard-uds-path"), "");
    assert_null(arg(&f.cmd, "--replica-address"));
    assert_string_equal(arg(&f.cmd, "--replica-discovery"), "dns:name:80");
    end(&f);
}

/* Only under the launcher of all ranks, and as long as loading may take. */
TEST(shards_that_may_come_back)
{
    static const struct {
        const char *line, *timeout;
    } cases[] = {
        {"--model-id m", "600"},
        {"--model-id m --startup-timeout 5", "5"},
        {"--model-id m --startup-timeout 0", "86400"},
        {"--model-id m --max-shard-restarts 0", NULL},
        {"--model-id m --num-shard 2 --nnodes 2 --master-addr ::1", "600"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;
        given(&f, cases[i].line);
        assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
        const char *got = arg(&f.cmd, "--shard-return-timeout");
        if (cases[i].timeout)
            assert_string_equal(got, cases[i].timeout);
        else
            assert_null(got);
        end(&f);
    }
}

TEST(what_is_inherited)
{
    struct fixture f;
    given(&f, "--model-id m --cuda-graphs 0");
    assert_int_equal(plan_shard(&f.plan, 0, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "PATH"), "/bin");
    assert_string_equal(env(&f.cmd, "HOSTNAMES"), "kept");
    assert_string_equal(env(&f.cmd, "CUDA_GRAPHS"), "0");
    assert_null(env(&f.cmd, "LOG_LEVEL"));
    assert_null(env(&f.cmd, "HOSTNAME"));
    assert_null(env(&f.cmd, "NOTIFY_SOCKET"));
    assert_null(env(&f.cmd, "WATCHDOG_USEC"));
    assert_null(env(&f.cmd, "WATCHDOG_PID"));
    assert_null(env(&f.cmd, "API_KEY"));
    assert_null(arg(&f.cmd, "--sharded"));
    assert_string_equal(arg(&f.cmd, "--threads"), "16");
    end(&f);
}

TEST(the_router)
{
    struct fixture f;
    given(&f, "--model-id m --port 8080 --hostname ::1 --api-key secret --max-input-tokens 7 "
              "--max-batch-size 3 "
              "--cors-allow-origin http://a,http://b --otlp-endpoint http://c:4318 "
              "--disable-grammar-support");
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.program, "router");
    assert_string_equal(arg(&f.cmd, "--tokenizer-name"), "m");
    assert_string_equal(arg(&f.cmd, "--master-shard-uds-path"),
                        "/tmp/text-generation-server-8080-0");
    assert_string_equal(arg(&f.cmd, "--port"), "8080");
    assert_string_equal(arg(&f.cmd, "--hostname"), "::1");
    assert_string_equal(arg(&f.cmd, "--max-input-tokens"), "7");
    assert_string_equal(arg(&f.cmd, "--max-batch-size"), "3");
    assert_string_equal(arg(&f.cmd, "--waiting-served-ratio"), "0.3");
    assert_string_equal(arg(&f.cmd, "--cors-allow-origin"), "http://a,http://b");
    assert_string_equal(arg(&f.cmd, "--otlp-service-name"), "text-generation-inference.router");
    assert_non_null(arg(&f.cmd, "--disable-grammar-support"));
    assert_null(arg(&f.cmd, "--max-total-tokens"));
    assert_null(arg(&f.cmd, "--api-key"));
    assert_null(arg(&f.cmd, "--dtype"));
    assert_string_equal(env(&f.cmd, "API_KEY"), "secret");
    assert_string_equal(env(&f.cmd, "LOG_LEVEL"), "info");

    char keys[20000]; /* of a thousand clients */
    memset(keys, 'k', sizeof(keys) - 1);
    keys[sizeof(keys) - 1] = 0;
    f.cfg.api_key = keys;
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "API_KEY"), keys);
    end(&f);
}

TEST(the_download)
{
    struct fixture f;
    given(&f,
          "--model-id org/m --revision v2 --huggingface-hub-cache /data --weights-cache-override "
          "/w --lora-adapters a/b,c/d@v1,x=e/f@v3");
    assert_int_equal(f.plan.n_sources, 4);
    assert_int_equal(plan_download(&f.plan, 2, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.argv.v[2], "c/d");
    assert_string_equal(arg(&f.cmd, "--revision"), "v1");
    assert_string_equal(env(&f.cmd, "WEIGHTS_CACHE_OVERRIDE"), "");
    assert_string_equal(f.plan.sources[3].id, "e/f");
    assert_int_equal(plan_download(&f.plan, 1, &f.cmd, &f.e), 0);
    assert_null(arg(&f.cmd, "--revision"));
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "HUGGINGFACE_HUB_CACHE"), "/data");
    assert_int_equal(plan_download(&f.plan, 0, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "WEIGHTS_CACHE_OVERRIDE"), "/w");
    assert_string_equal(f.cmd.argv.v[1], "download-weights");
    assert_string_equal(f.cmd.argv.v[2], "org/m");
    assert_string_equal(arg(&f.cmd, "--revision"), "v2");
    assert_string_equal(arg(&f.cmd, "--extension"), ".safetensors");
    assert_string_equal(env(&f.cmd, "HUGGINGFACE_HUB_CACHE"), "/data");
    assert_null(arg(&f.cmd, "--otlp-service-name"));
    end(&f);
}

TEST(sockets)
{
    struct fixture f;
    char line[300] = "--model-id m --shard-uds-path /";
    given(&f, "--model-id m --shard-uds-path unix:///run/x --threads 3 --num-shard 2");
    assert_string_equal(plan_socket(&f.plan, 1), "/run/x-1");
    assert_string_equal(plan_first_address(&f.cfg, &f.arena), "unix:/run/x-0");
    assert_int_equal(f.plan.threads, 3);
    end(&f);
    given(&f, "--model-id m --num-shard 32");
    assert_int_equal(f.plan.threads, 1);
    memset(line + strlen(line), 'x', 120);
    f.cfg.shard_uds_path = line + strlen("--model-id m --shard-uds-path ");
    assert_int_equal(plan_init(&f.plan, &f.cfg, "7-e1", inherited, &f.arena, 16, &f.e), -1);
    assert_non_null(strstr(f.e.msg, "`shard_uds_path` must have 1 to 91 bytes"));
    end(&f);
}

TEST(no_memory_is_an_error)
{
    struct fixture f;
    given(&f, "--model-id m");
    size_t limit = 1;
    for (int rc = -1; rc != 0; limit += 100) {
        struct arena small;
        arena_init(&small, limit);
        f.plan.arena = &small;
        f.e = (struct err)ERR_INIT;
        rc = plan_shard(&f.plan, 0, &f.cmd, &f.e);
        assert_true(rc == 0 || strstr(f.e.msg, "command line of model-server: out of memory"));
        arena_reset(&small);
    }
    assert_in_range(limit, 1000, 20000);
    end(&f);
}

/* Machine 1 of 2 starts the ranks of the second half; the cores are its own. */
TEST(a_shard_of_another_machine)
{
    struct fixture f;
    given(&f, "--model-id m --num-shard 4 --nnodes 2 --node-rank 1 --master-addr node0 "
              "--rendezvous-timeout 30 --cluster-secret-file /run/secret");
    assert_int_equal(f.plan.first, 2);
    assert_int_equal(f.plan.n, 2);
    assert_int_equal(plan_shard(&f.plan, f.plan.first, &f.cmd, &f.e), 0);
    assert_string_equal(env(&f.cmd, "RANK"), "2");
    assert_string_equal(env(&f.cmd, "WORLD_SIZE"), "4");
    assert_string_equal(env(&f.cmd, "NNODES"), "2");
    assert_string_equal(env(&f.cmd, "MASTER_ADDR"), "node0");
    assert_string_equal(env(&f.cmd, "MASTER_PORT"), "29500");
    assert_string_equal(env(&f.cmd, "RENDEZVOUS_TIMEOUT"), "30");
    assert_string_equal(arg(&f.cmd, "--threads"), "8");
    assert_string_equal(arg(&f.cmd, "--cluster-secret-file"), "/run/secret");
    assert_int_equal(plan_router(&f.plan, &f.cmd, &f.e), 0);
    assert_string_equal(arg(&f.cmd, "--cluster-secret-file"), "/run/secret");
    end(&f);
}

TEST(a_dry_run)
{
    struct fixture f;
    given(&f, "--model-id m --num-shard 2 --max-batch-prefill-tokens 77 --dry-run");
    assert_int_equal(plan_dry_run(&f.plan, 1, &f.cmd, &f.e), 0);
    assert_string_equal(f.cmd.argv.v[1], "serve");
    assert_non_null(arg(&f.cmd, "--dry-run"));
    assert_string_equal(arg(&f.cmd, "--max-batch-prefill-tokens"), "77");
    assert_string_equal(env(&f.cmd, "RANK"), "1");
    assert_int_equal(plan_shard(&f.plan, 1, &f.cmd, &f.e), 0);
    assert_null(arg(&f.cmd, "--dry-run"));
    end(&f);
}

int main(void) { return tests_run(NULL, NULL); }
