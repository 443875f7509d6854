/* A frozen child is told from one that waits, computes, is late, or lies under a debugger. */
#include "common/clock.h"
#include "common/process/heartbeat.h"
#include "launcher/process/liveness.h"
#include "tests/unit/test.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_MS = 2000, MOST_MS = 60000 };

static void sleeps(void)
{
    for (;;)
        pause();
}

static void spins(void)
{
    for (volatile unsigned i = 0;; i++) {
    }
}

static pid_t child(struct liveness *l, bool beats, void (*does)(void))
{
    struct err e = ERR_INIT;
    assert_int_equal(liveness_open(l), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (beats && heartbeat_start((uint32_t)l->fd, &e))
            _exit(1);
        does();
    }
    return pid;
}

static void end(struct liveness *l, pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    liveness_close(l);
}

/* So many turns, each `real_ms` long, which is said to be turn_ms. True: frozen. */
static bool watch(struct liveness *l, pid_t pid, int turns, uint32_t turn_ms, unsigned real_ms)
{
    for (int i = 0; i < turns; i++) {
        usleep(1000 * real_ms);
        if (liveness_turn(l, pid, turn_ms, TIMEOUT_MS))
            return true;
    }
    return false;
}

static void wait_for_beat(struct liveness *l, pid_t pid)
{
    for (int64_t by = clock_ms() + MOST_MS; !l->beats && clock_ms() < by;)
        watch(l, pid, 1, 1, 5);
    assert_true(l->beats);
}

static void wait_for_state(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

TEST(one_that_stops_is_frozen)
{
    struct liveness l;
    for (int beats = 0; beats < 2; beats++) { /* also one that had no heartbeat yet */
        pid_t pid = child(&l, beats, sleeps);
        if (beats)
            wait_for_beat(&l, pid);
        kill(pid, SIGSTOP);
        wait_for_state(pid);
        watch(&l, pid, 1, 0, 0); /* what it did before */
        assert_false(watch(&l, pid, 7, 250, 1));
        assert_true(watch(&l, pid, 2, 250, 1));
        assert_false(watch(&l, pid, 20, 250, 1)); /* said once */
        end(&l, pid);
    }
}

/* As the kernel reports it to the parent. Continued in time, it is as before. */
TEST(one_whose_stop_was_reported_has_half_a_second)
{
    struct liveness l;
    pid_t pid = child(&l, false, sleeps);
    kill(pid, SIGSTOP);
    wait_for_state(pid);
    liveness_stopped(&l, true);
    watch(&l, pid, 1, 0, 0); /* what it did before */
    assert_true(liveness_doubtful(&l));
    assert_false(watch(&l, pid, 1, 250, 1));
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, NULL, WCONTINUED), pid);
    liveness_stopped(&l, false);
    assert_false(watch(&l, pid, 9, 250, 1));
    assert_false(liveness_doubtful(&l));
    kill(pid, SIGSTOP);
    wait_for_state(pid);
    liveness_stopped(&l, true);
    watch(&l, pid, 1, 0, 0);
    assert_false(liveness_turn(&l, pid, 250, 0)); /* never */
    assert_false(watch(&l, pid, 1, 250, 1));
    assert_true(watch(&l, pid, 1, 250, 1));
    end(&l, pid);
}

/* All processes were stopped, and are continued one after the other, the launcher first. */
TEST(one_that_was_stopped_with_the_launcher_is_not)
{
    struct liveness l;
    pid_t pid = child(&l, false, sleeps);
    watch(&l, pid, 1, 0, 0);
    kill(pid, SIGSTOP);
    wait_for_state(pid);
    liveness_stopped(&l, true);
    assert_false(watch(&l, pid, 2, 20000, 1)); /* the time before the report, and a late turn */
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, NULL, WCONTINUED), pid);
    liveness_stopped(&l, false);
    assert_false(watch(&l, pid, 9, 250, 1));
    end(&l, pid);
}

/* Between two heartbeats the thread sleeps. */
TEST(a_heart_beats_at_its_pace)
{
    struct liveness l;
    uint64_t beats, n = 0;
    pid_t pid = child(&l, true, sleeps);
    const int64_t start = clock_ms();
    while (n < 2) {
        usleep(20000);
        if (read(l.fd, &beats, sizeof(beats)) == sizeof(beats))
            n += beats;
        assert_true(n <= 1 + (uint64_t)(clock_ms() - start) / HEARTBEAT_MS);
    }
    end(&l, pid);
}

TEST(one_that_works_or_waits_is_not)
{
    struct liveness l;
    pid_t pid = child(&l, false, sleeps); /* a program without heartbeats */
    assert_false(watch(&l, pid, 50, 500, 1));
    end(&l, pid);
    pid = child(&l, false, spins); /* its heartbeat gets no core */
    l.beats = true;
    assert_false(watch(&l, pid, 50, 500, 1));
    end(&l, pid);
    pid = child(&l, true, sleeps);
    wait_for_beat(&l, pid);
    for (int i = 0; i < 4; i++) { /* slow turns: one beat at least in each */
        uint64_t more = 1;
        assert_int_equal(write(l.fd, &more, sizeof(more)), sizeof(more));
        assert_false(watch(&l, pid, 1, 250, 1));
        assert_int_equal(l.quiet_ms, 0);
    }
    assert_false(liveness_turn(&l, pid, 500, 0)); /* never */
    end(&l, pid);
}

TEST(one_without_a_heartbeat_any_more_is)
{
    struct liveness l;
    pid_t pid = child(&l, false, sleeps);
    l.beats = true;
    assert_true(watch(&l, pid, 50, 500, 1));
    end(&l, pid);
}

/* A launcher that was suspended with the machine: one turn counts no more than two. */
TEST(the_time_is_that_of_the_machine)
{
    struct liveness l;
    pid_t pid = child(&l, false, sleeps);
    kill(pid, SIGSTOP);
    wait_for_state(pid);
    watch(&l, pid, 1, 0, 0);
    assert_false(watch(&l, pid, 3, 1000000, 1));
    assert_int_equal(l.quiet_ms, 3 * 2 * LIVENESS_TURN_MS);
    end(&l, pid);
}

TEST(one_under_a_debugger_is_not)
{
    struct liveness l;
    int status;
    pid_t pid = child(&l, true, sleeps);
    wait_for_beat(&l, pid);
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL)) {
        end(&l, pid);
        skip(); /* not allowed here */
    }
    assert_int_equal(waitpid(pid, &status, __WALL), pid);
    assert_false(watch(&l, pid, 20, 500, 1));
    end(&l, pid);
}

int main(void) { return tests_run(NULL, NULL); }
