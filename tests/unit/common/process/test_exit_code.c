/* Which failures have an exit code of their own, and what a child hands up. */
#include "common/process/exit_code.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(what_stays_wrong_has_a_code_of_its_own)
{
    static const struct {
        enum err_kind kind;
        int sys, code;
    } rows[] = {
        {ERR_SYSTEM, ENOENT, EX_NOINPUT}, {ERR_VALIDATION, ENOENT, EX_NOINPUT},
        {ERR_SYSTEM, EACCES, EX_NOPERM},  {ERR_VALIDATION, 0, EX_CONFIG},
        {ERR_SHAPE, 0, EX_CONFIG},        {ERR_SYSTEM, ENOSPC, EXIT_FAILURE},
        {ERR_SYSTEM, 0, EXIT_FAILURE},    {ERR_GENERATION, 0, EXIT_FAILURE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct err e = {.kind = rows[i].kind, .sys = rows[i].sys};
        assert_int_equal(exit_code(&e), rows[i].code);
    }
}

static int status_of(int code, int sig)
{
    int status;
    pid_t pid = fork();
    if (pid == 0 && sig)
        raise(sig);
    if (pid == 0)
        _exit(code);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(a_childs_code_is_its_own_or_its_signal)
{
    assert_int_equal(exit_code_of_child(status_of(EX_CONFIG, 0)), EX_CONFIG);
    assert_int_equal(exit_code_of_child(status_of(0, SIGKILL)), 137);
    assert_int_equal(exit_code_of_child(status_of(0, SIGTERM)), 143);
}

int main(void) { return tests_run(NULL, NULL); }
