/* A fleet whose name server misbehaves. Linked with --wrap=getaddrinfo. */
#include "tests/unit/router/fleet/fleet_rig.h"
#include <netdb.h>

enum { SILENT_MS = 20000 }; /* a resolver gives up, too */
static const struct fake_shard steady = {.step_ms = 2};
static atomic_bool silent, asked, ended;

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (strcmp(name, "replicas.test") != 0)
        return __real_getaddrinfo(name, service, hints, out);
    for (int ms = 0; ms < SILENT_MS && atomic_load(&silent); ms += 10) {
        atomic_store(&asked, true);
        usleep(10000);
    }
    atomic_store(&ended, true);
    return EAI_AGAIN;
}

static bool dns_was_asked(const void *arg)
{
    (void)arg;
    return atomic_load(&asked);
}

static bool look_up_ended(const void *arg)
{
    (void)arg;
    return atomic_load(&ended);
}

/* Requests end in time, and the router with them: what is lost does not wait for DNS. */
TEST(a_name_server_that_is_silent_delays_nothing)
{
    struct infer_config c = patient;
    c.return_ms = 300;
    struct fleet_rig *g = fleet_rig_new(&steady, &c, 2, "dns:replicas.test:80");
    assert_true(wait_for(all_ready, g));
    atomic_store(&silent, true);
    assert_true(wait_for(dns_was_asked, g));
    kill_shard(g, 0);
    kill_shard(g, 1);
    assert_true(wait_for(none_ready, g));
    struct client *w = client_new(1, 10, 9);
    fleet_submit(g->fleet, &w->r);
    expect_error(w, ERR_GENERATION, "no replica is left");
    assert_true(wait_for(fleet_is_lost, g));
    client_free(w);
    atomic_store(&silent, false);
    fleet_rig_free(g);
}

/* A look-up cannot be ended: the router does not wait for it. */
TEST(nor_the_end)
{
    const struct infer_config c = patient;
    struct fleet_rig *g = fleet_rig_new(&steady, &c, 2, "dns:replicas.test:80");
    assert_true(wait_for(all_ready, g));
    atomic_store(&asked, false);
    atomic_store(&silent, true);
    assert_true(wait_for(dns_was_asked, g));
    atomic_store(&ended, false);
    fleet_rig_free(g);
    assert_false(atomic_load(&ended));
    atomic_store(&silent, false);
    assert_true(wait_for(look_up_ended, NULL));
}

int main(void) { return tests_run(fleet_rig_set_up, temp_end); }
