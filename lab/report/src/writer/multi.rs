//! Writes a run to several outputs.

use std::io;

use crate::Writer;
use svclab_runner::run::Event;

/// Writer that passes every event to several writers.
pub struct MultiWriter<'a>(pub Vec<Box<dyn Writer + 'a>>);

impl Writer for MultiWriter<'_> {
    /// Passes the event to all writers, even if some fail. Returns the first error.
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.0
            .iter_mut()
            .map(|writer| writer.event(event))
            .fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Options};
    use svclab_runner::results::fixture;

    /// Output on a full disk.
    struct Full;

    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn multi_writer_failed_output_does_not_affect_others() {
        let mut alone = Vec::new();
        let mut second = Vec::new();
        let mut full = 0;
        {
            let mut single = Format::Json.writer(&mut alone, Options::default());
            let mut several = MultiWriter(vec![
                Format::Json.writer(Full, Options::default()),
                Format::Json.writer(&mut second, Options::default()),
            ]);
            for event in fixture::events() {
                single.event(&event).unwrap();
                full += usize::from(several.event(&event).is_err());
            }
        }
        assert!(full > 0);
        assert!(!alone.is_empty());
        assert_eq!(alone, second);
    }
}
