//! The C and Fortran interface, from outside: installed, compiled against, and killed.

#[path = "../../../../tests/opencl/mod.rs"]
mod opencl;
#[path = "../../../../tests/skipped/mod.rs"]
mod skipped;
#[path = "../../../skt-device/tests/stand_in/library.rs"]
mod stand_in_library;

mod bad_use;
mod build;
mod clients;
mod cuda;
mod device;
mod differ;
mod drills;
mod header;
mod identity;
mod movers;
mod page;
mod stand_in;
mod suspended;
