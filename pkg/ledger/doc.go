// Package ledger computes, in memory, what of a source is settled, and what may be written of it.
//
// A [Ledger] is that of one source. The informer's goroutine calls it for each change, in their order (AddRow,
// SetRow, Track, FinishList, Advance); sinks settle what they were given, in any order (Settle); the committer
// collects what may be written (Collect) and says whether it was (Confirm, TakeBack). Nothing in it waits or writes.
//
// A position is a resourceVersion up to which everything was handed over. A sink's watermark is the last position
// before its oldest change that is not settled; the source's is the least of them. Rows follow the source's watermark
// and are never ahead of it: a row that is removed too early is a deletion lost. They may lag behind, which costs a
// repetition.
//
// A sink that is new to the source is first given the rows as its initial list. Until that is settled it has no
// watermark of its own, so that it begins again after a crash, and it holds the source's watermark, so that the rows
// that it was given stay. The same holds for a sink whose filter changed, until it has settled the difference; but it
// keeps the watermark that it had.
package ledger
