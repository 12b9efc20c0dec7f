// Package ledger computes, in memory, up to which position a source is settled, and which rows may be written to the
// store.
//
// A [Ledger] belongs to one source. The informer's goroutine records every change in order (AddRow, SetRow, Track,
// FinishList, Advance). Sinks settle their events in any order (Settle). The committer collects the updates that may be
// written (Collect) and reports whether they were written (Confirm or TakeBack). A Ledger does not block and does no
// I/O.
//
// A position is a resourceVersion up to which all changes were passed to the sinks. A sink's watermark is the last
// position before the sink's oldest unsettled event. The source's watermark is the lowest watermark of its sinks. Rows
// are written only up to the source's watermark: if a row were removed too early, a deletion could be lost. A row that
// is too old only causes an event to be brought again, which the sink then finds in its destination.
//
// An event can also wait before it is sent to a sink ([Ledger.Wait]).
//
// A sink that is new to the source is first sent the rows as its initial list. Until the initial list is settled, the
// sink has no watermark, so the initial list is sent again after a crash. During this time, the source's watermark does
// not move, so the rows are not changed. The same applies to a sink with a changed filter until the sink has settled
// the difference between the filters, except that the sink keeps its watermark.
package ledger
