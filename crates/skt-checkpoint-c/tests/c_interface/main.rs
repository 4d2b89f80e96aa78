//! The C and Fortran interface, from outside: installed, compiled against, and killed.

mod bad_use;
mod build;
mod clients;
mod differ;
mod drills;
mod header;
mod identity;
mod movers;
mod page;
mod suspended;
