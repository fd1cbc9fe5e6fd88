/*
 * While work runs, signals that end the program say where it was: a kernel that leaves its memory
 * (segmentation fault), or does what the sanitizer's traps watch for (illegal instruction: an
 * address that is not aligned for the access, an index beyond an array). They are caught on a stack
 * of their own, as fibers' stacks may be what is full.
 */
#include "tests/cuda/virtual/block.h"
#include "tests/cuda/virtual/state.h"

#include <signal.h>
#include <stdio.h>

enum { STACK_BYTES = 64 * 1024, SIGNALS = 4 };

#if defined(__SANITIZE_ADDRESS__)
static const int watched[] = {SIGILL}; /* its own reports say more */
#else
static const int watched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#endif
static struct sigaction before[SIGNALS];
static stack_t stack_before;
alignas(16) static char signal_stack[STACK_BYTES];

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    signal(number, SIG_DFL);
    if (number == SIGILL) {
        virtual_fatal("%s: a misaligned access, an index beyond its array or the like",
                      block_where().c_str());
    }
    virtual_fatal("%s: %s at %p%s", block_where().c_str(),
                  number == SIGSEGV  ? "segmentation fault"
                  : number == SIGBUS ? "bus error"
                                     : "arithmetic fault",
                  info->si_addr, memory_describe(info->si_addr).c_str());
}

void crash_watch(void)
{
    struct sigaction action = {};
    stack_t stack = {};

    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof(signal_stack);
    sigaltstack(&stack, &stack_before);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++) {
        sigaction(watched[i], &action, &before[i]);
    }
}

void crash_unwatch(void)
{
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++) {
        sigaction(watched[i], &before[i], NULL);
    }
    sigaltstack(&stack_before, NULL);
}
