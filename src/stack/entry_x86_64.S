// entry_x86_64.S - the three places where a stack begins or where a goroutine's frames end.

    .text

// Where a fresh stack starts (context.h, make_context). The `nop` stands before the label because unwinders look up
// "return address - 1". The registers still hold values of the computation that was left. They are cleared: the first
// function would save them on this stack, where they would refer to what that computation had for as long as this one
// lives (observe/reach.h).
    .p2align 4
    .cfi_startproc
    .cfi_undefined rip
    nop
    .globl dunlin_context_entry
    .hidden dunlin_context_entry
    .type dunlin_context_entry, @function
dunlin_context_entry:
    endbr64
    xorl %ebp, %ebp
    xorl %ebx, %ebx
    xorl %r12d, %r12d
    xorl %r13d, %r13d
    xorl %r14d, %r14d
    xorl %r15d, %r15d
    call dunlin_goroutine_loop
    ud2
    .cfi_endproc
    .size dunlin_context_entry, . - dunlin_context_entry

// void dunlin_invoke(void (*entry)(void*), void* frame): calls entry(frame). Its personality routine comes into
// play when no frame of the goroutine wants an exception (it reports, with the stack intact), and it is where the
// forced unwinding of exit_goroutine() ends.
    .p2align 4
    .globl dunlin_invoke
    .hidden dunlin_invoke
    .type dunlin_invoke, @function
dunlin_invoke:
    .cfi_startproc
    .cfi_personality 0x9b, DW.ref.dunlin_goroutine_personality
    endbr64
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    movq %rdi, %rax
    movq %rsi, %rdi
    call *%rax
    .globl dunlin_invoke_landing
    .hidden dunlin_invoke_landing
dunlin_invoke_landing:
    popq %rbp
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size dunlin_invoke, . - dunlin_invoke

// long dunlin_call_above(const context*, long (*f)(void*), void* argument): calls f(argument) in such a way that an
// unwinder started in f sees the stopped computation of *context as the caller. This is how the stack of a parked
// goroutine is read without frame pointers. The CFI says: the caller's registers are in the 24 bytes that rbx points
// to; its CFA is the saved stack pointer.
    .p2align 4
    .globl dunlin_call_above
    .hidden dunlin_call_above
    .type dunlin_call_above, @function
dunlin_call_above:
    .cfi_startproc
    endbr64
    pushq %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    pushq %rbp
    .cfi_def_cfa_offset 24
    .cfi_offset %rbp, -24
    movq %rdi, %rbx
    movq %rsi, %rax
    movq %rdx, %rdi
    subq $8, %rsp
    .cfi_remember_state
    // DW_CFA_def_cfa_expression: DW_OP_breg3 (rbx) 0, DW_OP_deref  -> CFA = context->sp
    .cfi_escape 0x0f, 0x03, 0x73, 0x00, 0x06
    // DW_CFA_expression rbp(6) at: DW_OP_breg3 8;  DW_CFA_expression rip(16) at: DW_OP_breg3 16
    .cfi_escape 0x10, 0x06, 0x02, 0x73, 0x08
    .cfi_escape 0x10, 0x10, 0x02, 0x73, 0x10
    // rbx itself: the frames above have spilled what they need of it.
    .cfi_same_value %rbx
    call *%rax
    .cfi_restore_state
    addq $8, %rsp
    popq %rbp
    popq %rbx
    ret
    .cfi_endproc
    .size dunlin_call_above, . - dunlin_call_above

    .hidden DW.ref.dunlin_goroutine_personality
    .weak DW.ref.dunlin_goroutine_personality
    .section .data.rel.local.DW.ref.dunlin_goroutine_personality, "awG", @progbits, DW.ref.dunlin_goroutine_personality, comdat
    .p2align 3
    .type DW.ref.dunlin_goroutine_personality, @object
    .size DW.ref.dunlin_goroutine_personality, 8
DW.ref.dunlin_goroutine_personality:
    .quad dunlin_goroutine_personality

    .section .note.GNU-stack, "", @progbits
