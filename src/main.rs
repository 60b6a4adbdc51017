#![doc = "The gleaner program."]
fn main() {}
