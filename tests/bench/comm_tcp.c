/* comm_tcp.c - sums over TCP between processes of this machine: in the clear, authenticated by a
 * secret, and over TLS. Each way in turn, several times; the best and the median time of one
 * all-reduce.
 *
 *   comm_tcp [ranks] [rounds]     default: 2 ranks, 7 rounds */
#include "common/clock.h"
#include "model-server/comm/comm.h"
#include "tests/certs.h"
#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS_MAX = 64, SIZES = 4, KINDS = 3 };
static const size_t sizes[SIZES] = {1024, 4096, 65536, 1048576}; /* floats */
static const int repeats[SIZES] = {4000, 2000, 400, 40};
static const char *const names[KINDS] = {"plain", "secret", "TLS"};

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (void *)&a, n) || getsockname(fd, (void *)&a, &n))
        abort();
    close(fd);
    return ntohs(a.sin_port);
}

/* us[size]: microseconds of one sum, by rank 0. */
static int run_rank(int rank, int world, int port, const struct cluster *c, double *us)
{
    struct err e = ERR_INIT;
    struct comm_tcp_options o = {.host = "127.0.0.1",
                                 .port = port,
                                 .rank = rank,
                                 .world = world,
                                 .nodes = world,
                                 .timeout_ms = 60000,
                                 .cluster = c};
    struct comm *comm = comm_tcp_open(&o, &e);
    float *x = calloc(sizes[SIZES - 1], sizeof(*x));
    if (!comm || !x)
        return fprintf(stderr, "%s\n", e.msg), 1;
    for (int s = 0; s < SIZES; s++) {
        for (int warm = 0; warm < repeats[s] / 10; warm++)
            comm_all_reduce(comm, x, sizes[s], &e);
        int64_t t = clock_ns();
        for (int i = 0; i < repeats[s]; i++)
            if (comm_all_reduce(comm, x, sizes[s], &e))
                return fprintf(stderr, "%s\n", e.msg), 1;
        if (rank == 0)
            us[s] = (double)(clock_ns() - t) / repeats[s] / 1e3;
    }
    comm_close(comm);
    free(x);
    return 0;
}

static void run(int world, const struct cluster *c, double *us)
{
    const int port = free_port();
    int bad = 0;
    for (int r = 0; r < world; r++)
        if (!fork())
            _exit(run_rank(r, world, port, c, us));
    for (int r = 0, st; r < world; r++)
        bad |= wait(&st) < 0 || st;
    if (bad)
        exit(1);
}

static int order(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
    const int world = argc > 1 ? atoi(argv[1]) : 2, asked = argc > 2 ? atoi(argv[2]) : 7;
    const int rounds = asked < 1 ? 1 : asked > ROUNDS_MAX ? ROUNDS_MAX : asked;
    static struct cluster clusters[KINDS];
    struct certs files;
    struct err e = ERR_INIT;
    double *us =
        mmap(NULL, SIZES * sizeof(*us), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static double all[KINDS][SIZES][ROUNDS_MAX];
    certs_make(&files, "ranks.bench");
    for (int k = 0; k < KINDS; k++) {
        struct cluster_options o = certs_options(&files, (enum cluster_kind)k);
        if (cluster_load(&clusters[k], &o, &e))
            return fprintf(stderr, "%s\n", e.msg), 1;
    }
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < KINDS; k++) {
            run(world, &clusters[k], us);
            for (int s = 0; s < SIZES; s++)
                all[k][s][r] = us[s];
        }
    printf("%d ranks, %d rounds: microseconds of a sum, best and median\n", world, rounds);
    for (int s = 0; s < SIZES; s++) {
        printf("%8zu KiB", sizes[s] * sizeof(float) / 1024);
        for (int k = 0; k < KINDS; k++) {
            qsort(all[k][s], (size_t)rounds, sizeof(double), order);
            printf("   %s %9.1f %9.1f", names[k], all[k][s][0], all[k][s][rounds / 2]);
        }
        printf("\n");
    }
    for (int k = 0; k < KINDS; k++)
        cluster_free(&clusters[k]);
    certs_remove(&files);
    return 0;
}
