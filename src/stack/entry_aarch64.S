// entry_aarch64.S - the three places where a stack begins or where a goroutine's frames end. See entry_x86_64.S for the
// reasons.

    .text

    .p2align 4
    .cfi_startproc
    .cfi_undefined x30
    nop
    .globl dunlin_context_entry
    .hidden dunlin_context_entry
    .type dunlin_context_entry, %function
dunlin_context_entry:
    hint #36
    mov x29, xzr
    mov x30, xzr
    mov x19, xzr
    mov x20, xzr
    mov x21, xzr
    mov x22, xzr
    mov x23, xzr
    mov x24, xzr
    mov x25, xzr
    mov x26, xzr
    mov x27, xzr
    mov x28, xzr
    bl dunlin_goroutine_loop
    brk #1
    .cfi_endproc
    .size dunlin_context_entry, . - dunlin_context_entry

    .p2align 4
    .globl dunlin_invoke
    .hidden dunlin_invoke
    .type dunlin_invoke, %function
dunlin_invoke:
    .cfi_startproc
    .cfi_personality 0x9b, DW.ref.dunlin_goroutine_personality
    hint #34
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    .cfi_def_cfa_register x29
    mov x2, x0
    mov x0, x1
    blr x2
    .globl dunlin_invoke_landing
    .hidden dunlin_invoke_landing
dunlin_invoke_landing:
    hint #36
    ldp x29, x30, [sp], #16
    .cfi_def_cfa sp, 0
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size dunlin_invoke, . - dunlin_invoke

    .p2align 4
    .globl dunlin_call_above
    .hidden dunlin_call_above
    .type dunlin_call_above, %function
dunlin_call_above:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    str x19, [sp, #16]
    .cfi_offset x19, -16
    mov x19, x0
    mov x3, x1
    mov x0, x2
    .cfi_remember_state
    // DW_CFA_def_cfa_expression: DW_OP_breg19 0, DW_OP_deref -> CFA = context->sp
    .cfi_escape 0x0f, 0x03, 0x83, 0x00, 0x06
    // x29 at context+8, return address (x30) at context+16
    .cfi_escape 0x10, 0x1d, 0x02, 0x83, 0x08
    .cfi_escape 0x10, 0x1e, 0x02, 0x83, 0x10
    .cfi_same_value x19
    blr x3
    .cfi_restore_state
    ldr x19, [sp, #16]
    ldp x29, x30, [sp], #32
    ret
    .cfi_endproc
    .size dunlin_call_above, . - dunlin_call_above

    .hidden DW.ref.dunlin_goroutine_personality
    .weak DW.ref.dunlin_goroutine_personality
    .section .data.rel.local.DW.ref.dunlin_goroutine_personality, "awG", %progbits, DW.ref.dunlin_goroutine_personality, comdat
    .p2align 3
    .type DW.ref.dunlin_goroutine_personality, %object
    .size DW.ref.dunlin_goroutine_personality, 8
DW.ref.dunlin_goroutine_personality:
    .xword dunlin_goroutine_personality

#if defined(__ARM_FEATURE_BTI_DEFAULT)
// Every place above that is reached by an indirect branch has its landing pad (the hints). Without this note the linker
// would turn the enforcement off for the whole program. Nothing here signs a return address, nor needs to: PAC is each
// frame's own affair.
    .pushsection .note.gnu.property, "a", %note
    .p2align 3
    .word 4, 16, 5
    .asciz "GNU"
    .word 0xc0000000, 4, 1, 0  // GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI
    .popsection
#endif

    .section .note.GNU-stack, "", %progbits
