mod golden;
mod path;
mod properties;
