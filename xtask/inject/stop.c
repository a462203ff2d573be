/*
 * Stops one thread of another process: `stop THREAD` says "stopped" when it stands still, and lets it go on
 * when its standard input ends. A single thread can be stopped only by ptrace; that is done here so that
 * xtask needs no unsafe code. Should this program be killed, the kernel lets the thread go on.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longer than anybody is to be held. */
enum { MOST_SECONDS = 30 };

static int complain(const char *what)
{
    perror(what);
    return 1;
}

int main(int count, char **words)
{
    pid_t thread = count == 2 ? atoi(words[1]) : 0;
    if (thread <= 0) {
        fprintf(stderr, "usage: stop THREAD\n");
        return 2;
    }
    alarm(MOST_SECONDS);
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
        return complain("PTRACE_SEIZE");
    if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) != 0)
        return complain("PTRACE_INTERRUPT");
    int status;
    if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
        return complain("waitpid");
    puts("stopped");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    if (ptrace(PTRACE_DETACH, thread, NULL, NULL) != 0)
        return complain("PTRACE_DETACH");
    return 0;
}
