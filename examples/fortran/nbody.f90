! Gravity between all pairs of bodies that survives the loss of ranks. Positions and velocities are
! memory of the library, which outlives the process; the number of the step is copied.
!
!     mpirun -np 4 nbody 400     kill -9 a rank: the same command continues
!
! The result has the same bits as without the kill.
program nbody
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env, only: error_unit, output_unit, real64
   use mpi
   use skt
   implicit none

   ! restart: the exit code of a job that is to be started again.
   integer, parameter :: bodies = 200, every = 20, restart = 75
   real(real64), parameter :: dt = 1.0e-3_real64, softening = 1.0e-2_real64
   real(real64), pointer :: x(:, :), v(:, :)
   real(real64) :: theirs(3, bodies), next(3, bodies), a(3, bodies)
   integer(c_int64_t), target :: step
   integer(c_int64_t) :: steps, found
   integer(c_size_t), parameter :: vectors = 3 * bodies, reals = 8, one = 1
   type(c_ptr) :: memory
   integer :: comm, rank, ranks, code
   character(len=32) :: argument

   steps = 400
   if (command_argument_count() > 0) then
      call get_command_argument(1, argument)
      read (argument, *) steps
   end if
   call MPI_Init(code)
   code = skt_init(MPI_COMM_WORLD, 2 * vectors * reals + reals, 'application = "nbody 200"')
   if (code == SKT_ENDED) then
      call MPI_Finalize(code)
      stop
   end if
   call need(code)
   call need(skt_comm(comm))
   call MPI_Comm_rank(comm, rank, code)
   call MPI_Comm_size(comm, ranks, code)
   call need(skt_alloc(1, vectors, reals, memory))
   call c_f_pointer(memory, x, [3, bodies])
   call need(skt_alloc(2, vectors, reals, memory))
   call c_f_pointer(memory, v, [3, bodies])
   step = 0
   call need(skt_protect(0, c_loc(step), one, reals))
   call need(skt_found(found))
   if (found > 0) then
      call need(skt_restore())
      if (rank == 0) write (error_unit, '(a, i0)') 'continues from step ', step
   else
      call begin()
   end if

   do while (step < steps)
      if (step > 0 .and. mod(step, int(every, c_int64_t)) == 0) then
         call need(skt_checkpoint())
         if (rank == 0) write (error_unit, '(a, i0)') 'checkpoint at step ', step
      end if
      call forces()
      v = v + dt * a
      x = x + dt * v
      step = step + 1
   end do

   call report()
   call need(skt_finalize(.true.))
   call MPI_Finalize(code)

contains

   ! Ends the job where a call has failed: to be started again where something was lost.
   subroutine need(code)
      integer(c_int), intent(in) :: code
      integer :: ended

      if (code == SKT_SUCCESS) return
      write (error_unit, '(4a)') 'nbody: ', skt_error(code), ': ', skt_message()
      if (code == SKT_ERR_LOST .or. code == SKT_ERR_TIMEOUT) then
         call MPI_Abort(MPI_COMM_WORLD, restart, ended)
      end if
      call MPI_Abort(MPI_COMM_WORLD, 2, ended)
   end subroutine need

   ! Places this rank's bodies on a spiral, at rest.
   subroutine begin()
      integer :: i
      real(real64) :: t

      do i = 1, bodies
         t = real(rank * bodies + i, real64) / real(ranks * bodies, real64)
         x(:, i) = t * [cos(40 * t), sin(40 * t), 0.1_real64 * cos(7 * t)]
      end do
      v = 0
   end subroutine begin

   ! The accelerations of this rank's bodies; the others' positions pass around a ring, in an order
   ! that depends on the ranks alone.
   subroutine forces()
      integer :: hop, i, j
      real(real64) :: d(3), r2

      a = 0
      theirs = x
      do hop = 1, ranks
         do i = 1, bodies
            do j = 1, bodies
               d = theirs(:, j) - x(:, i)
               r2 = dot_product(d, d) + softening**2
               a(:, i) = a(:, i) + d / (r2 * sqrt(r2) * real(ranks * bodies, real64))
            end do
         end do
         if (hop == ranks) exit
         call MPI_Sendrecv(theirs, 3 * bodies, MPI_DOUBLE_PRECISION, mod(rank + 1, ranks), 1, &
            next, 3 * bodies, MPI_DOUBLE_PRECISION, mod(rank + ranks - 1, ranks), 1, comm, &
            MPI_STATUS_IGNORE, code)
         theirs = next
      end do
   end subroutine forces

   ! Prints a sum over all bodies, in the order of the ranks.
   subroutine report()
      real(real64) :: mine(1), each(ranks)

      mine = sum(x * x) + sum(v * v)
      call MPI_Gather(mine, 1, MPI_DOUBLE_PRECISION, each, 1, MPI_DOUBLE_PRECISION, 0, comm, code)
      if (rank /= 0) return
      write (output_unit, '(a, es24.16e3)') 'sum of squares ', sum(each)
      flush (output_unit)
   end subroutine report
end program nbody
