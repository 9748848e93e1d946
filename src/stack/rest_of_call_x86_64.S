// rest_of_call_x86_64.S - goes on with a transfer that a signal has cut short (stack/interrupted_call.h).
//
// Where a signal handler returns to, instead of the instruction behind the call. In: rax the number of the call (write,
// sendto, recvfrom); rdi, rsi, rdx its arguments, of which rsi is where the bytes are and rdx how many; r10 its flags,
// if it has any; r11 how many of them were moved; rcx where the call would have returned. Out: as the call leaves it,
// with the sum in rax.
//
// Waits until the socket is ready, and moves what can be moved at once; so an error of the socket is seen by poll(),
// which leaves it to the program's next call. A signal ends the wait, and with it the transfer; if it was one of ours,
// the handler returns to dunlin_rest_of_call_wait.
    .set poll, 7
    .set ioctl, 16
    .set write, 1
    .set sendto, 44
    .set recvfrom, 45
    .set dont_wait, 0x40       // MSG_DONTWAIT
    .set no_signal, 0x4000     // MSG_NOSIGNAL: the program's next call raises it
    .set again, -11            // EAGAIN
    .set most_again, 1000      // so many times in all: the kernel has no memory, or other threads move the bytes
    .set fionread, 0x541b      // FIONREAD
    .set in_event, 0x1         // POLLIN
    .set urgent_event, 0x2     // POLLPRI
    .set out_event, 0x4        // POLLOUT
    .set error_event, 0x8      // POLLERR: a reader gets what is queued before it
    .set hang_up_event, 0x10   // POLLHUP: likewise, and then the end; a writer gets an error
    .set bad_event, 0x20       // POLLNVAL

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
    pushq %rdi
    .cfi_def_cfa_offset 144
    pushq %rsi
    .cfi_def_cfa_offset 152
    pushq %rdx
    .cfi_def_cfa_offset 160
    pushq %r10
    .cfi_def_cfa_offset 168
    pushq %r8
    .cfi_def_cfa_offset 176
    pushq %r9
    .cfi_def_cfa_offset 184
    // 0 pollfd, 8 number, 12 events that end it, 16 flags, 24 sum, 32 place, 40 bytes left, 48 for FIONREAD, 52 times
    // that nothing was moved
    leaq -56(%rsp), %rsp
    .cfi_def_cfa_offset 240
    movq %r11, 24(%rsp)
    addq %r11, %rsi
    movq %rsi, 32(%rsp)
    subq %r11, %rdx
    movq %rdx, 40(%rsp)
    movl %edi, (%rsp)
    movl $0, 52(%rsp)
    movl $in_event | urgent_event, 4(%rsp)
    movl $urgent_event | bad_event, 12(%rsp)
    cmpl $recvfrom, %eax
    je 1f
    movl $out_event, 4(%rsp)
    movl $error_event | hang_up_event | bad_event, 12(%rsp)
    cmpl $write, %eax
    jne 1f
    movl $sendto, %eax
    xorl %r10d, %r10d
1:
    movl %eax, 8(%rsp)
    orl $dont_wait | no_signal, %r10d
    movq %r10, 16(%rsp)

    .globl dunlin_rest_of_call_wait
    .hidden dunlin_rest_of_call_wait
dunlin_rest_of_call_wait:
    movl $poll, %eax
    movq %rsp, %rdi
    movl $1, %esi
    movl $-1, %edx
    syscall
    .globl dunlin_rest_of_call_waited
    .hidden dunlin_rest_of_call_waited
dunlin_rest_of_call_waited:
    cmpq $1, %rax
    jne 3f
    movzwl 6(%rsp), %ecx
    testl 12(%rsp), %ecx
    jnz 3f
    testl $error_event, %ecx
    jz 2f
    // A reader: if nothing is queued, the call would take the error away.
    movl $ioctl, %eax
    movl (%rsp), %edi
    movl $fionread, %esi
    leaq 48(%rsp), %rdx
    movl $0, (%rdx)
    syscall
    cmpl $0, 48(%rsp)
    jle 3f
2:
    movl 8(%rsp), %eax
    movl (%rsp), %edi
    movq 32(%rsp), %rsi
    movq 40(%rsp), %rdx
    movq 16(%rsp), %r10
    xorl %r8d, %r8d
    xorl %r9d, %r9d
    syscall
    cmpq $again, %rax
    jne 2f
    incl 52(%rsp)
    cmpl $most_again, 52(%rsp)
    jb dunlin_rest_of_call_wait
2:
    testq %rax, %rax
    jle 3f
    addq %rax, 24(%rsp)
    addq %rax, 32(%rsp)
    subq %rax, 40(%rsp)
    jnz dunlin_rest_of_call_wait
3:
    movq 24(%rsp), %rax
    leaq 56(%rsp), %rsp
    .cfi_def_cfa_offset 184
    popq %r9
    .cfi_def_cfa_offset 176
    popq %r8
    .cfi_def_cfa_offset 168
    popq %r10
    .cfi_def_cfa_offset 160
    popq %rdx
    .cfi_def_cfa_offset 152
    popq %rsi
    .cfi_def_cfa_offset 144
    popq %rdi
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
