package tracker

import "time"

const (
	// commitInterval is how often what was settled is written. It bounds what a crash repeats.
	commitInterval = time.Second
	// maxCommitInterval is what it grows to where commits take long: under a load that changes the same objects again and
	// again, a commit half as often costs half as much.
	maxCommitInterval = 4 * time.Second
	// commitShare is the part of the time that commits may take.
	commitShare = 40
	// maxCommitBytes is how much may wait to be written for longer than commitInterval: it is in memory.
	maxCommitBytes = 16 << 20
	// learnFromRows is how many rows a commit has to have to tell what a row takes.
	learnFromRows = 1000
)

// commitPace says when what was settled is written.
type commitPace struct {
	row      time.Duration // what a row takes, as far as that is known
	rowBytes int
}

func newCommitPace() *commitPace { return &commitPace{row: 10 * time.Microsecond, rowBytes: 2 << 10} }

// due reports whether to commit so many rows, after this time since the last commit.
func (p *commitPace) due(rows int, since time.Duration) bool {
	return since >= maxCommitInterval || rows*p.rowBytes >= maxCommitBytes || since >= commitShare*time.Duration(rows)*p.row
}

// learn takes note of what a commit took.
func (p *commitPace) learn(rows, size int, took time.Duration) {
	if rows >= learnFromRows {
		p.row, p.rowBytes = took/time.Duration(rows), size/rows
	}
}
