//! Decisions read from the bytes of a fuzzer or of a property test.

/// Source of decisions; returns 0 for everything once the bytes are used up.
pub struct Choices<'b>(pub &'b [u8]);

impl Choices<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        if end == 0 { 0 } else { number % end }
    }

    /// Returns one of `items`.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Returns any number, often a limit of its type.
    pub fn number(&mut self) -> u64 {
        match self.byte() % 4 {
            0 => u64::MAX,
            1 => u64::from(self.byte()),
            2 => 1 << 63,
            _ => u64::from_be_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}
