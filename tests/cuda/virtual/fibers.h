/*
 * fibers: contexts with a stack of their own, switched by hand. On x86-64 a switch saves the
 * registers that calls preserve and changes the stack pointer; elsewhere it is ucontext's.
 * AddressSanitizer is told.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_FIBERS_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_FIBERS_H

#include <stddef.h>

#if !defined(__x86_64__) || defined(VIRTUAL_UCONTEXT)
#define VIRTUAL_FIBERS_ARE_UCONTEXT 1
#include <ucontext.h>
#endif

struct fiber {
#ifdef VIRTUAL_FIBERS_ARE_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    unsigned char *stack; /* lowest byte; of the thread that runs a block, its own stack */
    size_t stack_bytes;
    void *sanitizer; /* its stack of frames */
};

/* `entry` must not return. Fibers are never destroyed: they are used again. */
struct fiber *fiber_create(void (*entry)(void), unsigned colour);
/* Leave `from`, whose state is kept there, and go on in `to`. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* First thing in `entry`. */
void fiber_entered(void);

#endif
