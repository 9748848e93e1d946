// rest_of_call_x86_64.S - goes on with a system call that a signal has cut short (stack/interrupted_call.h).
//
// Where a signal handler returns to, instead of the instruction behind the call. In: rax the number of the call; rdi,
// rsi, rdx, r10, r8, r9 its arguments, of which rsi is where the bytes are and rdx how many; r11 how many of them were
// moved; rcx where the call would have returned. Out: as the call leaves it, with the sum in rax.
    .text
    .p2align 4
    .globl dunlin_rest_of_call
    .hidden dunlin_rest_of_call
    .type dunlin_rest_of_call, @function
dunlin_rest_of_call:
    .cfi_startproc
    // As in a signal's frame, the address that it returns to is the next instruction's, not one behind a call.
    .cfi_signal_frame
    .cfi_def_cfa %rsp, 0
    .cfi_register %rip, %rcx
    leaq -128(%rsp), %rsp  // below it a function may have what it needs (the red zone)
    .cfi_def_cfa_offset 128
    pushq %rcx
    .cfi_def_cfa_offset 136
    .cfi_offset %rip, -136
    pushq %rsi
    .cfi_def_cfa_offset 144
    pushq %rdx
    .cfi_def_cfa_offset 152
    pushq %rax
    .cfi_def_cfa_offset 160
    pushq %r11
    .cfi_def_cfa_offset 168
    addq %r11, %rsi
    subq %r11, %rdx
1:
    movq 8(%rsp), %rax
    syscall
    testq %rax, %rax
    jle 2f
    addq %rax, (%rsp)
    addq %rax, %rsi
    subq %rax, %rdx
    ja 1b
2:
    popq %rax
    .cfi_def_cfa_offset 160
    leaq 8(%rsp), %rsp
    .cfi_def_cfa_offset 152
    popq %rdx
    .cfi_def_cfa_offset 144
    popq %rsi
    .cfi_def_cfa_offset 136
    popq %rcx
    .cfi_def_cfa_offset 128
    .cfi_register %rip, %rcx
    leaq 128(%rsp), %rsp
    .cfi_def_cfa_offset 0
    jmpq *%rcx
    .cfi_endproc
    .size dunlin_rest_of_call, . - dunlin_rest_of_call
    .globl dunlin_rest_of_call_end
    .hidden dunlin_rest_of_call_end
dunlin_rest_of_call_end:

    .section .note.GNU-stack, "", @progbits
