// Package ledger computes, in memory, what of a source is settled, and what may be written of it.
//
// A [Ledger] belongs to one source. The informer's goroutine calls it for each change, in order (AddRow,
// SetRow, Track, FinishList, Advance); sinks settle what they were sent, in any order (Settle); the committer collects
// what may be written (Collect) and reports whether it was (Confirm, TakeBack). A Ledger neither waits nor writes.
//
// A position is a resourceVersion up to which everything was handed over. A sink's watermark is the last position
// before its oldest change that is not settled; the source's watermark is the lowest of them. Rows follow the source's
// watermark and are never ahead of it: if a row were removed too early, a deletion could be lost. A row that is too old
// costs only a repetition.
//
// A sink that is new to the source is first sent the rows as its initial list. Until the list is settled, the sink has
// no watermark, so that the list begins again after a crash, and it holds the source's watermark, so that the rows
// stay. A sink whose filter changed does the same until it has settled the difference, but it keeps its watermark.
package ledger
