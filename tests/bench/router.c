/* What the router's lower half costs per token: the real scheduler, real gRPC over a Unix socket, a
 * shard that computes nothing. CPU is that of the scheduler's thread, which owns every step; a step
 * is from one answer of the shard to the next. */
#include "common/clock.h"
#include "router/generate/infer.h"
#include "router/metrics.h"
#include "tests/fake_shard.h"
#include <unistd.h>

enum { PROMPT = 32, NEW = 400 };

struct tally {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint32_t n_over, n_tokens, n_steps;
    int64_t cpu_start, cpu_end, wall_start, wall_end; /* of the steps with everybody in */
};

static int64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct tally all = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0, 0, 0};
static uint32_t batch, in_step;

static void on_event(struct gen_request *r, const struct gen_event *ev)
{
    (void)r;
    if (ev->type == GEN_ERROR) {
        fprintf(stderr, "%s\n", ev->err->msg);
        exit(1);
    }
    in_step++;
    if (!ev->end)
        return;
    pthread_mutex_lock(&all.lock);
    all.n_over++;
    pthread_cond_signal(&all.cond);
    pthread_mutex_unlock(&all.lock);
}

static void on_flush(void *arg)
{
    (void)arg;
    if (in_step == batch && all.n_over == 0) { /* full steps only */
        if (!all.wall_start) {
            all.wall_start = clock_ns();
            all.cpu_start = thread_cpu_ns();
        } else {
            all.n_steps++;
            all.n_tokens += batch;
            all.wall_end = clock_ns();
            all.cpu_end = thread_cpu_ns();
        }
    }
    in_step = 0;
}

static void run(struct infer *infer, uint32_t n)
{
    static uint32_t prompt[PROMPT];
    struct gen_request *r = calloc(n, sizeof(*r));
    all.n_over = all.n_tokens = all.n_steps = 0;
    all.wall_start = all.wall_end = 0;
    batch = n;
    for (uint32_t i = 0; i < n; i++) {
        arena_init(&r[i].arena, 1 << 16);
        r[i].params = (struct gen_params){.temperature = 1, .max_new_tokens = NEW};
        r[i].ids = prompt;
        r[i].n_ids = PROMPT;
        r[i].sink = (struct gen_sink){on_event, on_flush, NULL};
        infer_submit(infer, &r[i]);
    }
    pthread_mutex_lock(&all.lock);
    while (all.n_over < n)
        pthread_cond_wait(&all.cond, &all.lock);
    pthread_mutex_unlock(&all.lock);
    double steps = all.n_steps, tokens = all.n_tokens;
    printf("%6u %10.0f %14.1f %14.2f %14.0f\n", n, steps,
           (double)(all.wall_end - all.wall_start) / steps / 1e3,
           (double)(all.cpu_end - all.cpu_start) / tokens / 1e3,
           tokens / ((double)(all.wall_end - all.wall_start) * 1e-9));
    for (uint32_t i = 0; i < n; i++)
        arena_reset(&r[i].arena);
    free(r);
}

int main(void)
{
    struct fake_shard f = {.block_size = 16, .n_blocks = 8192};
    struct err e = ERR_INIT;
    snprintf(f.path, sizeof(f.path), "/tmp/bench-router-%d", (int)getpid());
    f.quick = true;
    fake_start(&f);
    struct metrics *m = metrics_new(router_metrics, N_ROUTER_METRICS);
    struct infer_config conf = {
        .shard_target = f.path, .max_batch_prefill_tokens = 8192, .metrics = m};
    struct infer *infer = infer_start(&conf, &e);
    if (!infer) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    printf(" batch      steps    us per step   CPU us/token       tokens/s\n");
    run(infer, 1); /* warm */
    for (uint32_t n = 1; n <= 256; n *= n < 128 ? (n == 1 ? 8 : 4) : 2)
        run(infer, n);
    infer_stop(infer);
    metrics_free(m);
    fake_stop(&f);
    return 0;
}
