/* Contexts with a stack of their own: see fibers.h. The switch follows the System V ABI, AMD64
 * supplement, 3.2.1: callees preserve rbx, rbp, r12 to r15 and the stack pointer. */
#include "tests/cuda/virtual/fibers.h"

#include "tests/cuda/virtual/runtime.h"

#include <stdint.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 512 * 1024 }; /* frames have red zones */
#else
enum { STACK_BYTES = 128 * 1024 };
#endif

enum { PAGE = 4096, COLOURS = 31, LINE = 64 };

static struct fiber *switched_from; /* only one thread runs fibers at a time */

#ifndef VIRTUAL_FIBERS_ARE_UCONTEXT
extern "C" void virtual_switch(void **save, void *load);
asm(R"(
    .text
    .globl virtual_switch
    .hidden virtual_switch
    .type virtual_switch, @function
virtual_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size virtual_switch, .-virtual_switch
)");
#endif

struct fiber *fiber_create(void (*entry)(void), unsigned colour)
{
    struct fiber *fiber = new struct fiber();
    /* Stacks begin at different cache lines, or all their tops would compete for a few sets. */
    size_t used = colour % COLOURS * 2 * LINE;
    void *block = mmap(NULL, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (block == MAP_FAILED || mprotect(block, PAGE, PROT_NONE) != 0) {
        virtual_fatal("no memory for the stack of a thread");
    }
    fiber->stack = static_cast<unsigned char *>(block) + PAGE;
    fiber->stack_bytes = STACK_BYTES - used;
#ifdef VIRTUAL_FIBERS_ARE_UCONTEXT
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, entry, 0);
#else
    void **top = reinterpret_cast<void **>(fiber->stack + fiber->stack_bytes);

    *--top = NULL; /* where backtraces end; and entry sees the alignment of a call */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) {
        *--top = NULL;
    }
    fiber->stack_pointer = top;
#endif
    return fiber;
}

void fiber_entered(void)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (switched_from->stack == NULL) { /* an ordinary thread: now its stack is known */
        switched_from->stack = static_cast<unsigned char *>(const_cast<void *>(bottom));
        switched_from->stack_bytes = bytes;
    }
#endif
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    switched_from = from;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->stack_bytes);
#endif
#ifdef VIRTUAL_FIBERS_ARE_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    virtual_switch(&from->stack_pointer, to->stack_pointer);
#endif
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(from->sanitizer, &bottom, &bytes);
    if (switched_from->stack == NULL) {
        switched_from->stack = static_cast<unsigned char *>(const_cast<void *>(bottom));
        switched_from->stack_bytes = bytes;
    }
#endif
}
