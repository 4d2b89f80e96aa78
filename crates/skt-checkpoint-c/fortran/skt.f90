! Checkpoints in memory that survive the loss of ranks, for Fortran 2008 and later.
!
! The calls are those of skt.h, as functions that return its codes. Communicators are the integers
! of the module mpi; with mpi_f08 they are comm%MPI_VAL. Memory is given by address: c_loc of a
! variable with the attribute target, and c_f_pointer for memory of skt_alloc.
module skt
   use, intrinsic :: iso_c_binding, only: c_int, c_int64_t, c_size_t, c_ptr, c_char, c_double, &
      c_null_char, c_f_pointer, c_funptr, c_null_funptr, c_null_ptr
   implicit none
   private

   integer(c_int), parameter, public :: SKT_SUCCESS = 0
   integer(c_int), parameter, public :: SKT_ENDED = 1
   integer(c_int), parameter, public :: SKT_ERR_ARGUMENT = -1
   integer(c_int), parameter, public :: SKT_ERR_ORDER = -2
   integer(c_int), parameter, public :: SKT_ERR_OPTIONS = -3
   integer(c_int), parameter, public :: SKT_ERR_MPI = -4
   integer(c_int), parameter, public :: SKT_ERR_THREAD = -5
   integer(c_int), parameter, public :: SKT_ERR_SPACE = -6
   integer(c_int), parameter, public :: SKT_ERR_REGION = -7
   integer(c_int), parameter, public :: SKT_ERR_REFUSED = -8
   integer(c_int), parameter, public :: SKT_ERR_SYSTEM = -9
   integer(c_int), parameter, public :: SKT_ERR_TIMEOUT = -10
   integer(c_int), parameter, public :: SKT_ERR_LOST = -11
   integer(c_int), parameter, public :: SKT_ERR_INTERNAL = -12
   integer(c_int), parameter, public :: SKT_ERR_LEVEL = -13
   integer(c_int), parameter, public :: SKT_ERR_DEVICE = -14

   integer(c_int), parameter, public :: SKT_NOT_DUE = 0
   integer(c_int), parameter, public :: SKT_DUE_NOW = 1
   integer(c_int), parameter, public :: SKT_DUE_LAST = 2

   ! Procedures with bind(c) that copy memory of a device: c_funloc of each; error may be
   ! c_null_funptr. Their arguments are those of skt.h.
   type, bind(c), public :: skt_mover
      type(c_funptr) :: to_host = c_null_funptr
      type(c_funptr) :: from_host = c_null_funptr
      type(c_funptr) :: error = c_null_funptr
      type(c_ptr) :: context = c_null_ptr
   end type skt_mover

   public :: skt_init, skt_comm, skt_found, skt_saved, skt_alloc, skt_protect, skt_unprotect
   public :: skt_protect_with, skt_mover_cuda, skt_mover_hip, skt_mover_opencl
   public :: skt_restore, skt_checkpoint, skt_checkpoint_begin, skt_checkpoint_test
   public :: skt_checkpoint_wait, skt_due, skt_time_left, skt_image, skt_images_wait, skt_finalize
   public :: skt_error, skt_message, skt_version

   interface
      function init_f(comm, bytes, options) bind(c, name='skt_init_f') result(code)
         import :: c_int, c_size_t, c_char
         integer(c_int), value :: comm
         integer(c_size_t), value :: bytes
         character(kind=c_char), intent(in) :: options(*)
         integer(c_int) :: code
      end function init_f

      function skt_comm(comm) bind(c, name='skt_comm_f') result(code)
         import :: c_int
         integer(c_int), intent(out) :: comm
         integer(c_int) :: code
      end function skt_comm

      function skt_found(checkpoint) bind(c, name='skt_found') result(code)
         import :: c_int, c_int64_t
         integer(c_int64_t), intent(out) :: checkpoint
         integer(c_int) :: code
      end function skt_found

      function skt_saved(id, count, size) bind(c, name='skt_saved') result(code)
         import :: c_int, c_size_t
         integer(c_int), value :: id
         integer(c_size_t), intent(out) :: count, size
         integer(c_int) :: code
      end function skt_saved

      function skt_alloc(id, count, size, memory) bind(c, name='skt_alloc') result(code)
         import :: c_int, c_size_t, c_ptr
         integer(c_int), value :: id
         integer(c_size_t), value :: count, size
         type(c_ptr), intent(out) :: memory
         integer(c_int) :: code
      end function skt_alloc

      function skt_protect(id, memory, count, size) bind(c, name='skt_protect') result(code)
         import :: c_int, c_size_t, c_ptr
         integer(c_int), value :: id
         type(c_ptr), value :: memory
         integer(c_size_t), value :: count, size
         integer(c_int) :: code
      end function skt_protect

      function skt_protect_with(id, memory, count, size, mover) &
         bind(c, name='skt_protect_with') result(code)
         import :: c_int, c_size_t, c_ptr, skt_mover
         integer(c_int), value :: id
         type(c_ptr), value :: memory
         integer(c_size_t), value :: count, size
         type(skt_mover), intent(in) :: mover
         integer(c_int) :: code
      end function skt_protect_with

      function skt_mover_cuda(stream, mover) bind(c, name='skt_mover_cuda') result(code)
         import :: c_int, c_ptr, skt_mover
         type(c_ptr), value :: stream
         type(skt_mover), intent(out) :: mover
         integer(c_int) :: code
      end function skt_mover_cuda

      function skt_mover_hip(stream, mover) bind(c, name='skt_mover_hip') result(code)
         import :: c_int, c_ptr, skt_mover
         type(c_ptr), value :: stream
         type(skt_mover), intent(out) :: mover
         integer(c_int) :: code
      end function skt_mover_hip

      function skt_mover_opencl(queue, mover) bind(c, name='skt_mover_opencl') result(code)
         import :: c_int, c_ptr, skt_mover
         type(c_ptr), value :: queue
         type(skt_mover), intent(out) :: mover
         integer(c_int) :: code
      end function skt_mover_opencl

      function skt_unprotect(id) bind(c, name='skt_unprotect') result(code)
         import :: c_int
         integer(c_int), value :: id
         integer(c_int) :: code
      end function skt_unprotect

      function skt_restore() bind(c, name='skt_restore') result(code)
         import :: c_int
         integer(c_int) :: code
      end function skt_restore

      function skt_checkpoint() bind(c, name='skt_checkpoint') result(code)
         import :: c_int
         integer(c_int) :: code
      end function skt_checkpoint

      function skt_checkpoint_begin() bind(c, name='skt_checkpoint_begin') result(code)
         import :: c_int
         integer(c_int) :: code
      end function skt_checkpoint_begin

      function test_c(done) bind(c, name='skt_checkpoint_test') result(code)
         import :: c_int
         integer(c_int), intent(out) :: done
         integer(c_int) :: code
      end function test_c

      function skt_checkpoint_wait() bind(c, name='skt_checkpoint_wait') result(code)
         import :: c_int
         integer(c_int) :: code
      end function skt_checkpoint_wait

      function skt_due(due) bind(c, name='skt_due') result(code)
         import :: c_int
         integer(c_int), intent(out) :: due
         integer(c_int) :: code
      end function skt_due

      function skt_time_left(seconds) bind(c, name='skt_time_left') result(code)
         import :: c_int, c_double
         real(c_double), intent(out) :: seconds
         integer(c_int) :: code
      end function skt_time_left

      function skt_image(level, checkpoint) bind(c, name='skt_image') result(code)
         import :: c_int, c_int64_t
         integer(c_int), value :: level
         integer(c_int64_t), intent(out) :: checkpoint
         integer(c_int) :: code
      end function skt_image

      function skt_images_wait() bind(c, name='skt_images_wait') result(code)
         import :: c_int
         integer(c_int) :: code
      end function skt_images_wait

      function finalize_c(done) bind(c, name='skt_finalize') result(code)
         import :: c_int
         integer(c_int), value :: done
         integer(c_int) :: code
      end function finalize_c

      function error_c(code) bind(c, name='skt_error') result(text)
         import :: c_int, c_ptr
         integer(c_int), value :: code
         type(c_ptr) :: text
      end function error_c

      function message_c() bind(c, name='skt_message') result(text)
         import :: c_ptr
         type(c_ptr) :: text
      end function message_c

      function version_c() bind(c, name='skt_version') result(text)
         import :: c_ptr
         type(c_ptr) :: text
      end function version_c
   end interface

   ! 0 and 1, as in C, are accepted, too.
   interface skt_finalize
      module procedure finalize_logical, finalize_integer
   end interface skt_finalize

contains

   ! Begins or continues a run; bytes and options are those of skt.h.
   function skt_init(comm, bytes, options) result(code)
      integer, intent(in) :: comm
      integer(c_size_t), intent(in) :: bytes
      character(len=*), intent(in) :: options
      integer(c_int) :: code
      character(kind=c_char) :: text(len_trim(options) + 1)
      integer :: i

      do i = 1, len_trim(options)
         text(i) = options(i:i)
      end do
      text(len_trim(options) + 1) = c_null_char
      code = init_f(int(comm, c_int), bytes, text)
   end function skt_init

   function skt_checkpoint_test(done) result(code)
      logical, intent(out) :: done
      integer(c_int) :: code, answer

      answer = 0
      code = test_c(answer)
      done = answer /= 0
   end function skt_checkpoint_test

   function finalize_logical(done) result(code)
      logical, intent(in) :: done
      integer(c_int) :: code

      code = finalize_c(merge(1_c_int, 0_c_int, done))
   end function finalize_logical

   function finalize_integer(done) result(code)
      integer(c_int), intent(in) :: done
      integer(c_int) :: code

      code = finalize_c(done)
   end function finalize_integer

   function skt_error(code) result(text)
      integer(c_int), intent(in) :: code
      character(len=:), allocatable :: text

      text = of_c(error_c(code))
   end function skt_error

   function skt_message() result(text)
      character(len=:), allocatable :: text

      text = of_c(message_c())
   end function skt_message

   function skt_version() result(text)
      character(len=:), allocatable :: text

      text = of_c(version_c())
   end function skt_version

   ! A text of C, which ends with a zero.
   function of_c(address) result(text)
      type(c_ptr), intent(in) :: address
      character(len=:), allocatable :: text
      character(kind=c_char), pointer :: letters(:)
      integer :: i, length

      call c_f_pointer(address, letters, [huge(0)])
      length = 0
      do while (letters(length + 1) /= c_null_char)
         length = length + 1
      end do
      allocate (character(len=length) :: text)
      do i = 1, length
         text(i:i) = letters(i)
      end do
   end function of_c
end module skt
