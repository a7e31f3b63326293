//! A binary min-heap over a vector.

use std::fmt::Debug;

#[derive(Debug, Default)]
pub struct Heap<T: Ord> {
    items: Vec<T>,
}

impl<T: Ord + Debug> Heap<T> {
    pub fn new() -> Self {
        Heap { items: Vec::new() }
    }

    pub fn push(&mut self, item: T) {
        self.items.push(item);
        let mut child = self.items.len() - 1;
        while child > 0 {
            let parent = (child - 1) / 2;
            if self.items[parent] <= self.items[child] {
                break;
            }
            self.items.swap(parent, child);
            child = parent;
        }
    }

    pub fn peek(&self) -> Option<&T> {
        self.items.first()
    }
}

fn main() {
    let mut heap = Heap::new();
    for n in [5, 3, 8, 1] {
        heap.push(n);
    }
    match heap.peek() {
        Some(least) => println!("least: {least:?}"),
        None => println!("empty"),
    }
}
