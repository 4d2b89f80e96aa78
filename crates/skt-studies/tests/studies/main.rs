mod golden;
mod levels;
mod path;
mod program;
mod properties;
mod published;
mod simulation;
