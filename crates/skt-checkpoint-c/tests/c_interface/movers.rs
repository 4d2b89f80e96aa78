//! Memory that only callbacks can copy: what is saved and restored, and each way to use it wrongly,
//! with a code and a text on all ranks. The cases are in `tests/c_sources/movers.c`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use skt_checkpoint_c::code::Code::{Argument, Device, Order, Region, Success, Thread};

use crate::bad_use::{Expected, segments_after_case};
use crate::build::{checkout, compile_c, compile_fortran, prefix, succeeds};
use crate::clients::mpirun::mpirun;

fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/movers.c");
        compile_c(&source, "movers", "gcc", &["-D_GNU_SOURCE"])
    };
    PROGRAM.get_or_init(compile).clone()
}

/// Runs a case, in which all ranks have the same output.
#[track_caller]
fn case(name: &str, expected: &[Expected]) {
    let left = segments_after_case(&program(), name, Path::new(""), |_| expected.to_vec());
    assert_eq!(left, 0, "{name}");
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    case(
        "arguments",
        &[
            (
                "skt_protect_with(2, address(&of), COUNT, 8, NULL)",
                Argument,
                "skt_protect_with: the mover of region 2 is null",
            ),
            (
                "skt_protect_with(2, address(&of), COUNT, 8, &no_to)",
                Argument,
                "skt_protect_with: to_host of region 2 is null",
            ),
            (
                "skt_protect_with(2, address(&of), COUNT, 8, &no_from)",
                Argument,
                "skt_protect_with: from_host of region 2 is null",
            ),
            (
                "skt_protect_with(2, NULL, COUNT, 8, &mover)",
                Argument,
                "skt_protect_with: the memory of region 2 is null",
            ),
            (
                "skt_protect_with(2, address(&of), 0, 8, &mover)",
                Argument,
                "skt_protect_with: region 2 of 0 x 8 bytes",
            ),
            (
                "skt_protect_with(2, address(&of), (size_t)-1, 8, &mover)",
                Argument,
                "skt_protect_with: region 2 of 18446744073709551615 x 8 bytes",
            ),
            ("skt_checkpoint()", Argument, "rank 0: skt_protect_with: the mover of region 2"),
            (
                "skt_protect(2, address(&of), COUNT, 8)",
                Argument,
                "skt_protect: the memory of region 2 is not accessible to the host: that of a \
                 device needs skt_protect_with",
            ),
            ("skt_checkpoint()", Argument, "rank 0: skt_protect: the memory of region 2 is not"),
            (
                "skt_protect_with(2, address(&of), COUNT, 8, &mover)",
                Order,
                "skt_protect_with: no run is open; call skt_init first",
            ),
        ],
    );
}

/// The checkpoint before is restored by the next start, and the run takes further ones.
#[test]
fn a_copy_that_fails_fails_the_checkpoint_on_all_ranks() {
    case(
        "fails-in-checkpoint",
        &[
            (
                "skt_checkpoint()",
                Device,
                "rank 2: region 1: to_host of bytes 33554432 to 40000000 fails: out of luck (code 7)",
            ),
            (
                "skt_checkpoint()",
                Device,
                "rank 0: region 1: to_host of bytes 0 to 33554432 fails: out of luck (code 7)",
            ),
        ],
    );
}

#[test]
fn a_copy_that_fails_in_begin_leaves_no_checkpoint_under_way() {
    let failed = "rank 1: region 1: to_host of bytes 0 to 800 fails: out of luck (code 7)";
    let not_begun = "no checkpoint is under way; call skt_checkpoint_begin first";
    case(
        "fails-in-begin",
        &[
            ("skt_checkpoint_begin()", Device, failed),
            ("skt_checkpoint_test(&done)", Order, not_begun),
            ("skt_checkpoint_wait()", Order, not_begun),
        ],
    );
}

#[test]
fn region_freed_after_begin_fails_only_the_next_checkpoint() {
    let failed = "rank 0: region 1: to_host of bytes 0 to 800 fails: invalid pointer (code 3)";
    case("freed-before-wait", &[("skt_checkpoint()", Device, failed)]);
}

#[test]
fn a_copy_that_fails_in_restore_can_be_tried_again() {
    case(
        "fails-in-restore",
        &[
            (
                "skt_restore()",
                Device,
                "rank 0: region 1: from_host of bytes 0 to 800 fails: out of luck (code 7)",
            ),
            ("skt_checkpoint()", Order, "is not restored; call skt_restore first"),
        ],
    );
}

#[test]
fn the_next_start_continues_from_before_a_device_was_lost() {
    let failed = "rank 1: region 1: to_host of bytes 0 to 800 fails: device lost (code 9)";
    case(
        "lost-device",
        &[("skt_checkpoint()", Device, failed), ("skt_checkpoint_begin()", Device, failed)],
    );
}

/// The program prints the text to a terminal.
#[test]
fn control_characters_of_mover_texts_are_escaped() {
    let failed = "rank 1: region 1: to_host of bytes 0 to 800 fails: \\u001b[2Jcleared (code 7)";
    case("escapes", &[("skt_checkpoint()", Device, failed)]);
}

#[test]
fn mover_codes_may_lack_texts() {
    let failed = "rank 1: region 1: to_host of bytes 0 to 800 fails: it returns no text (code 7)";
    case("no-text", &[("skt_checkpoint()", Device, failed)]);
}

#[test]
fn another_size_after_a_restart_is_refused() {
    let differs =
        "rank 1: region 1 is 100 x 8 bytes in the checkpoint, here it is 101 x 8: protect";
    case("other-size", &[("skt_restore()", Region, differs)]);
}

#[test]
fn device_data_continues_on_the_host_and_back() {
    case("moves-to-the-host", &[]);
}

/// The others wait for a copy without a limit.
#[test]
fn single_rank_may_have_a_device() {
    let failed = "rank 1: region 1: to_host of bytes 0 to 800 fails: out of luck (code 7)";
    case("one-rank", &[("skt_checkpoint()", Device, failed)]);
}

#[test]
fn a_callback_that_calls_the_library_is_refused() {
    let within = "a callback of this one: make one call at a time";
    case("calls-back", &[("skt_checkpoint()", Thread, within), ("skt_checkpoint()", Success, "")]);
}

const FORTRAN: &str = "module device
   use, intrinsic :: iso_c_binding
   implicit none
   real(c_double), target :: there(100)
contains
   function to_host(context, host, memory, offset, bytes) bind(c) result(code)
      type(c_ptr), value :: context, host, memory
      integer(c_size_t), value :: offset, bytes
      integer(c_int) :: code
      real(c_double), pointer :: here(:)
      call c_f_pointer(host, here, [bytes / 8])
      here = there(offset / 8 + 1 : (offset + bytes) / 8)
      code = merge(0_c_int, 5_c_int, c_associated(context) .and. c_associated(memory))
   end function to_host
   function from_host(context, memory, host, offset, bytes) bind(c) result(code)
      type(c_ptr), value :: context, memory, host
      integer(c_size_t), value :: offset, bytes
      integer(c_int) :: code
      real(c_double), pointer :: here(:)
      call c_f_pointer(host, here, [bytes / 8])
      there(offset / 8 + 1 : (offset + bytes) / 8) = here
      code = merge(0_c_int, 5_c_int, c_associated(context) .and. c_associated(memory))
   end function from_host
end module device
program movers
   use mpi
   use device
   use skt
   implicit none
   type(skt_mover) :: mover
   integer, target :: context
   integer(c_size_t), parameter :: n = 100, reals = 8
   integer :: code
   call MPI_Init(code)
   mover%to_host = c_funloc(to_host)
   mover%from_host = c_funloc(from_host)
   call start()
   there = 1.5_c_double
   if (skt_checkpoint() /= SKT_SUCCESS) error stop 'checkpoint'
   if (skt_finalize(.false.) /= SKT_SUCCESS) error stop 'later'
   there = 0
   mover%context = c_loc(context)
   call start()
   if (skt_restore() /= SKT_SUCCESS) then
      print '(a)', skt_message()
      error stop 'restore'
   end if
   if (any(abs(there - 1.5) > 0)) error stop 'restored'
   mover%context = c_null_ptr
   if (skt_protect_with(1, c_loc(there), n, reals, mover) /= SKT_SUCCESS) error stop 'again'
   if (skt_checkpoint() /= SKT_ERR_DEVICE) error stop 'no error'
   if (index(skt_message(), 'to_host of bytes 0 to 800 fails') == 0) error stop 'no message'
   if (skt_finalize(.true.) /= SKT_SUCCESS) error stop 'end'
   call MPI_Finalize(code)
contains
   subroutine start()
      if (skt_init(MPI_COMM_WORLD, n * reals, '') /= SKT_SUCCESS) error stop 'init'
      mover%context = c_loc(context)
      if (skt_protect_with(1, c_loc(there), n, reals, mover) /= SKT_SUCCESS) error stop 'protect'
   end subroutine start
end program movers
";

#[test]
fn callbacks_may_be_in_fortran() {
    let source = prefix().join("movers.f90");
    fs::write(&source, FORTRAN).expect("room");
    let Some(program) = compile_fortran(&source, "movers-fortran") else { return };
    let mut command = mpirun(2);
    command.arg(program);
    command.env("SKT_RUN_ID", format!("movers-{}", std::process::id()));
    assert_eq!(succeeds(&mut command), "");
}
